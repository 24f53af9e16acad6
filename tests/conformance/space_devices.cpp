/// The device of Kokkos's spaces that have memory of their own, on spaces of the host.

#include "backends/kokkos/spaces/device.hpp"
#include "tests/conformance/device_world.hpp"
#include "tests/kokkos/host_as_device.hpp"

namespace distattn::test {

const std::vector<DeviceKind>& device_world() {
  static const std::vector<DeviceKind> kinds = [] {
    std::vector<DeviceKind> all;
    for (kernels::portable::SpaceDevice* const space : {DISTATTN_HOSTS_AS_DEVICES}) {
      const auto make = [space](const DeviceOptions& options) {
        DeviceOptions with_threads = options;
        with_threads.threads = 2;
        return backends::make_space_device(*space, with_threads);
      };
      all.push_back({space->name(), DType::fp32, make});
      all.push_back({space->name() + ", bf16", DType::bf16, make});
    }
    return all;
  }();
  return kinds;
}

}  // namespace distattn::test
