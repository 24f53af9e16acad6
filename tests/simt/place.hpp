#pragma once
/// Where the kernels of a test run: on the emulator, or on a GPU where the test is linked with tests/gpu/place.cpp.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/cuda/launch.hpp"

namespace simt {

/// Bytes that kernels and the host may touch, and no more where bounds are checked. 128-byte aligned.
std::shared_ptr<std::byte> kernel_memory(std::size_t bytes);

/// Whether kernels for compute capability 9.0 alone run here. Those for 8.0 do everywhere.
bool has_hopper_units();

/// `start` launches kernels on a stream and returns their status; when this returns they have ended. On the emulator
/// every launch has that seed. 0 when all is well.
int run_kernels(std::uint64_t seed, const std::function<int(distattn::kernels::cuda::Stream)>& start);

/// Extra shared memory cycles that the last launch has cost; 0 where nobody counts them.
std::uint64_t bank_conflicts();

}  // namespace simt
