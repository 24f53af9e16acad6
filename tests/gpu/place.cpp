/// simt/place.hpp on this machine's GPU. Without one every test that is linked with this is skipped.

#define CATCH_CONFIG_EXTERNAL_INTERFACES  // Catch2 2 shows its listeners only then

#include "simt/place.hpp"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <stdexcept>

#include "backends/cuda/driver.hpp"
#include "catch.hpp"

namespace simt {
namespace {

namespace cuda = distattn::backends::cuda;

#if __has_include(<catch2/catch_all.hpp>)
using Listener = Catch::EventListenerBase;
#else
using Listener = Catch::TestEventListenerBase;
#endif

/// Looks for a GPU when tests begin: CUDA must not be called before main().
class GpuListener final : public Listener {
 public:
  using Listener::Listener;
  void testRunStarting(const Catch::TestRunInfo& run) override {
    Listener::testRunStarting(run);
    const cuda::Gpus& gpus = cuda::find_gpus();
    if (gpus.count > 0) return;
    std::cout << "SKIPPED: " << gpus.why << std::endl;
    std::exit(EXIT_SUCCESS);
  }
};
CATCH_REGISTER_LISTENER(GpuListener)

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

bool has_hopper_units() { return cuda::driver_for(0).capability().architecture == 90; }

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
