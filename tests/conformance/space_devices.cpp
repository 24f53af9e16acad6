/// The device of Kokkos's spaces that have memory of their own, on spaces of the host.

#include "backends/kokkos/spaces/device.hpp"
#include "tests/conformance/device_world.hpp"
#include "tests/kokkos/host_as_device.hpp"

namespace distattn::test {

const std::vector<DeviceKind>& device_world() {
  static const std::vector<DeviceKind> kinds = [] {
    std::vector<DeviceKind> all;
    const auto beyond = [](Problem& problem) { problem.scores.sink_logits = true; };
    for (kernels::portable::SpaceDevice* const space : hosts_as_devices()) {
      const auto make = [space](const DeviceOptions& options) {
        DeviceOptions with_threads = options;
        with_threads.threads = 2;
        return backends::make_space_device(*space, with_threads);
      };
      all.push_back({space->name(), DType::fp32, make, beyond});
      all.push_back({space->name() + ", bf16", DType::bf16, make, beyond});
    }
    return all;
  }();
  return kinds;
}

}  // namespace distattn::test
