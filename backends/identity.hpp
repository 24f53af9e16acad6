#pragma once
/// What tells machines apart, and containers on one machine, as the kernel names them.

#include <string>

namespace distattn::backends {

/// Names the machine, as long as it runs: processes with the same share its clock. "unknown" where /proc is hidden.
std::string boot_identity();
/// Name of one of this process's namespaces, as "net:[4026531840]"; "net:unknown" where /proc is hidden.
std::string namespace_of(const char* kind);

}  // namespace distattn::backends
