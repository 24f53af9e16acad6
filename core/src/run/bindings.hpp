#pragma once
/// Whether a caller's tensors are the shards that a program reads and writes.

#include "distattn/engine.hpp"

namespace distattn {

/// Throws Error(usage) naming the tensor, its shape and the shape of the rank's shard, or the memory that `device` does
/// not take. Allocates nothing otherwise.
void check(const Bindings& bindings, const Outline& outline, Rank rank, const Device& device);

/// Whether all tensors that are given lie in that memory.
bool lie_in(MemorySpace space, const Bindings& bindings);

}  // namespace distattn
