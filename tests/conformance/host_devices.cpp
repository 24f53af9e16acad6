/// The devices of the host: one for each table of kernels that this build has.

#include "distattn/registry.hpp"
#include "tests/conformance/device_world.hpp"

namespace distattn::test {

const std::vector<DeviceKind>& device_world() {
  static const std::vector<DeviceKind> kinds = [] {
    std::vector<DeviceKind> all;
    for (const BackendInfo& known : known_backends(BackendKind::device)) {
      if (!known.usable) continue;  // those with a memory of their own say it only when they are asked
      const std::string name = known.name;
      const auto make = [name](const DeviceOptions& options) {
        DeviceOptions with_threads = options;
        with_threads.threads = 2;
        return make_device(name, with_threads);
      };
      if (make({})->space() != MemorySpace::host) continue;
      all.push_back({name, DType::fp32, make});
      if (make({})->why_not({.head_dim = 8, .value_dim = 8, .dtype = DType::fp64}, Pass::forward).empty()) continue;
      all.back().beyond = [](Problem& problem) { problem.dtype = DType::fp64; };
      all.push_back({name + ", bf16", DType::bf16, make});
    }
    return all;
  }();
  return kinds;
}

}  // namespace distattn::test
