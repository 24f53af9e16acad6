/// The CUDA device with cuDNN's provider on an emulated GPU, with the library that stands in cuDNN's place.

#include "backends/cuda/device.hpp"
#include "backends/cudnn/provider.hpp"
#include "simt/emulated_driver.hpp"
#include "tests/conformance/device_world.hpp"

namespace distattn {

/// Stands for the registry, which would want a real GPU; nothing here asks it.
std::unique_ptr<Device> make_device(std::string_view, const DeviceOptions&) { return nullptr; }

}  // namespace distattn

namespace distattn::test {

const std::vector<DeviceKind>& device_world() {
  using namespace backends;
  constexpr std::uint64_t seed = 6;
  static simt::EmulatedDriver gpu(seed);
  const auto make = [](const DeviceOptions& options) {
    return cuda::make_cuda_device(gpu, options, cudnn::make_provider(cudnn::load_library(DISTATTN_CUDNN_STANDIN), gpu));
  };
  static const std::vector<DeviceKind> kinds = {
      {"cudnn", DType::bf16, make, [](Problem& problem) { problem.dtype = DType::fp32; }, false}};
  return kinds;
}

}  // namespace distattn::test
