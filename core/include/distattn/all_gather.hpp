#pragma once
/// An exchange outside of passes: every rank gets what all ranks have.

#include <cstddef>
#include <span>

#include "distattn/engine.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// A collective. Rank r gives bytes[r] bytes of host memory, and `all` receives those of all ranks, one rank's after
/// the other's. `bytes` is the same on all ranks. Waits first for the transport's queued passes. Throws Error(usage),
/// before anything is sent, if the sizes do not fit or the transport does not reach host memory; any other failure ends
/// the transport.
void all_gather(Transport& transport, std::span<const std::byte> mine, std::span<const std::size_t> bytes,
                std::span<std::byte> all);

}  // namespace distattn
#pragma GCC visibility pop
