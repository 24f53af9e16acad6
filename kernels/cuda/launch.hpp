#pragma once
/// How a kernel is launched, in words that need no CUDA header.

#include <cstddef>

namespace distattn::kernels::cuda {

/// A cudaStream_t; on the emulator the seed of the launch.
using Stream = void*;

struct LaunchShape {
  unsigned blocks = 0;
  unsigned threads = 0;
  std::size_t shared_bytes = 0;
};

}  // namespace distattn::kernels::cuda
