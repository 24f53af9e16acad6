#include "kernels/kokkos/kokkos.hpp"
#include "backends/host/device.hpp"
#include "backends/registration.hpp"
#include "kernels/kokkos/launch.hpp"
#include "kernels/kokkos/select.hpp"

namespace distattn::backends {

Registration register_kokkos() {
  BackendInfo info{"kokkos", BackendKind::device, true, true, "", kernels::kokkos::kokkos_version()};
  try {
    info.why = kernels::kokkos::isa_report();
  } catch (const Error& error) {
    info.usable = false;
    info.misconfigured = error.kind();
    info.why = error.what();
  }
  return {info, [](const DeviceOptions& options) { return make_host_device(kernels::kokkos_kernels(), options); }};
}

}  // namespace distattn::backends
