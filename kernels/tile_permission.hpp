#pragma once
/// Whether this process may use the processor's tiles (AMX).

#include <string>

namespace distattn::kernels {

/// Empty, or what is missing. The first call asks the kernel of the operating system for the tiles' registers, which it
/// lends to a process that asks.
const std::string& missing_tiles();

}  // namespace distattn::kernels
