/// simt/place.hpp on this machine's GPU. Without one every test that is linked with this is skipped.

#include "simt/place.hpp"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <stdexcept>

#include "backends/cuda/driver.hpp"

namespace simt {
namespace {

namespace cuda = distattn::backends::cuda;

[[maybe_unused]] const bool gpu_is_here = [] {
  const cuda::Gpus& gpus = cuda::find_gpus();
  if (gpus.count > 0) return true;
  std::cout << "SKIPPED: " << gpus.why << std::endl;
  std::exit(EXIT_SUCCESS);
}();

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

std::mutex blocks_mutex;
std::map<std::byte*, std::size_t> blocks;

cudaError_t prefetch(const std::byte* memory, std::size_t bytes, int gpu) {
#if CUDART_VERSION >= 13000
  return cudaMemPrefetchAsync(memory, bytes, {cudaMemLocationTypeDevice, gpu}, 0, nullptr);
#else
  return cudaMemPrefetchAsync(memory, bytes, gpu, nullptr);
#endif
}

}  // namespace

std::shared_ptr<std::byte> kernel_memory(std::size_t bytes) {
  const std::size_t some = bytes > 0 ? bytes : 1;
  void* memory = nullptr;
  check(cudaMallocManaged(&memory, some));
  const std::scoped_lock lock(blocks_mutex);
  blocks[static_cast<std::byte*>(memory)] = some;
  return {static_cast<std::byte*>(memory), [](std::byte* managed) {
            const std::scoped_lock lock_again(blocks_mutex);
            blocks.erase(managed);
            cudaFree(managed);
          }};
}

bool has_hopper_units() { return cuda::driver_for(0).architecture() == 90; }

/// Brings all memory to the GPU first, as programs have it: nothing says that the copy engine waits for pages.
int run_kernels(std::uint64_t, const std::function<int(distattn::kernels::cuda::Stream)>& start) {
  int gpu = 0;
  check(cudaGetDevice(&gpu));
  {
    const std::scoped_lock lock(blocks_mutex);
    for (const auto& [memory, bytes] : blocks) check(prefetch(memory, bytes, gpu));
  }
  const int status = start(nullptr);
  return status != 0 ? status : cudaDeviceSynchronize();
}

std::uint64_t bank_conflicts() { return 0; }

}  // namespace simt
