#include "kernels/portable/vector_launch.hpp"

#include "backends/host/device.hpp"
#include "backends/registration.hpp"
#include "kernels/portable/runtime.hpp"
#include "kernels/vector/select.hpp"

namespace distattn::backends {

Registration register_kokkos() {
  BackendInfo info{"kokkos", BackendKind::device, true, true, "", kernels::portable::kokkos_version()};
  try {
    info.why = "launches the kernels of cpu: " + kernels::vector::isa_report();
  } catch (const Error& error) {
    info.usable = false;
    info.misconfigured = error.kind();
    info.why = error.what();
  }
  return {info, [](const DeviceOptions& options) { return make_host_device(kernels::kokkos_kernels(), options); }};
}

}  // namespace distattn::backends
