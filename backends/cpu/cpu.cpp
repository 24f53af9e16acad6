#include "backends/host/device.hpp"
#include "backends/registration.hpp"
#include "kernels/kokkos/kokkos.hpp"
#include "kernels/kokkos/select.hpp"

namespace distattn::backends {

Registration register_cpu() {
  BackendInfo info{"cpu", BackendKind::device, true, true, "", ""};
  try {
    info.why = kernels::kokkos::isa_report();
  } catch (const Error& error) {
    info.usable = false;
    info.misconfigured = error.kind();
    info.why = error.what();
  }
  return {info, [](const DeviceOptions& options) { return make_host_device(kernels::cpu_kernels(), options); }};
}

}  // namespace distattn::backends
