#include "backends/host/device.hpp"
#include "backends/registration.hpp"

namespace distattn::backends {

Registration register_reference() {
  return {{"reference", BackendKind::device, true, true, "obvious loops in every element type", ""},
          [](const DeviceOptions& options) { return make_host_device(kernels::reference_kernels(), options); }};
}

}  // namespace distattn::backends
