/// The CUDA device on emulated GPUs: its kernels for Ampere and for Hopper, started one by one and as graphs.

#include "backends/cuda/device.hpp"
#include "simt/emulated_driver.hpp"
#include "tests/conformance/device_world.hpp"

namespace distattn {

/// Stands for the registry, which would want a real GPU; nothing here asks it.
std::unique_ptr<Device> make_device(std::string_view, const DeviceOptions&) { return nullptr; }

}  // namespace distattn

namespace distattn::test {

const std::vector<DeviceKind>& device_world() {
  constexpr std::uint64_t seed = 5;
  static simt::EmulatedDriver ampere(seed, 80), hopper(seed, 90);
  const auto on = [](simt::EmulatedDriver& gpu, StepGraphs graphs) {
    return [&gpu, graphs](const DeviceOptions& options) {
      DeviceOptions all = options;
      all.gpu.step_graphs = graphs;
      return backends::cuda::make_cuda_device(gpu, all);
    };
  };
  const auto beyond = [](Problem& problem) { problem.dtype = DType::fp64; };
  static const std::vector<DeviceKind> kinds = {
      {"cuda on Ampere", DType::fp32, on(ampere, StepGraphs::never), beyond},
      {"cuda on Ampere, bf16", DType::bf16, on(ampere, StepGraphs::always), beyond},
      {"cuda on Hopper", DType::bf16, on(hopper, StepGraphs::never), beyond}};
  return kinds;
}

}  // namespace distattn::test
