#pragma once
/// A backend of portable kernels on one of Kokkos's host spaces.

#include "backends/host/device.hpp"
#include "backends/registration.hpp"
#include "kernels/portable/runtime.hpp"
#include "kernels/portable/spaces.hpp"

namespace distattn::backends {

/// `what`: what computes there.
inline Registration host_space(const kernels::HostKernels& kernels, const std::string& what) {
  BackendInfo info{kernels.name, BackendKind::device, true, true, what, kernels::portable::kokkos_version()};
  const std::string why_not = kernels::portable::why_no_kokkos();
  if (!why_not.empty()) {
    info.usable = false;
    info.why = why_not;
  }
  return {info, [&kernels](const DeviceOptions& options) {
            return make_host_device(kernels, options, std::make_shared<kernels::portable::SpaceClaim>(kernels.name));
          }};
}

}  // namespace distattn::backends
