#pragma once
/// How much memory there is. Any thread.

#include <cstdint>

#pragma GCC visibility push(default)
namespace distattn {

/// Bytes that the machine has; 0 where the system does not tell.
std::int64_t physical_memory_bytes();

/// The least of these and of what limits allow this process: its control group's, and that of its address space
/// (`ulimit -v`). Where none is told, more than any machine has.
std::int64_t usable_memory_bytes();

}  // namespace distattn
#pragma GCC visibility pop
