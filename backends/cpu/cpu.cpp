#include "kernels/vector/cpu.hpp"
#include "backends/host/device.hpp"
#include "backends/registration.hpp"
#include "kernels/vector/select.hpp"

namespace distattn::backends {

Registration register_cpu() {
  BackendInfo info{"cpu", BackendKind::device, true, true, "", ""};
  try {
    info.why = kernels::vector::isa_report();
  } catch (const Error& error) {
    info.usable = false;
    info.misconfigured = error.kind();
    info.why = error.what();
  }
  return {info, [](const DeviceOptions& options) { return make_host_device(kernels::cpu_kernels(), options); }};
}

}  // namespace distattn::backends
