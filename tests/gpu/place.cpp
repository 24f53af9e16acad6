/// simt/place.hpp on this machine's GPU. Without one every test that is linked with this is skipped.

#include "simt/place.hpp"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <iostream>
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

}  // namespace

std::shared_ptr<std::byte> kernel_memory(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMallocManaged(&memory, bytes > 0 ? bytes : 1));
  return {static_cast<std::byte*>(memory), [](std::byte* managed) { cudaFree(managed); }};
}

bool has_hopper_units() { return cuda::driver_for(0).architecture() == 90; }

int run_kernels(std::uint64_t, const std::function<int(distattn::kernels::cuda::Stream)>& start) {
  const int status = start(nullptr);
  return status != 0 ? status : cudaDeviceSynchronize();
}

std::uint64_t bank_conflicts() { return 0; }

}  // namespace simt
