#pragma once
/// A backend of portable kernels on one of Kokkos's spaces.

#include "backends/host/device.hpp"
#include "backends/kokkos/spaces/device.hpp"
#include "backends/registration.hpp"
#include "kernels/portable/runtime.hpp"
#include "kernels/portable/spaces.hpp"

namespace distattn::backends {

/// On the threads of a host. `what`: what computes there.
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

/// On a device with memory of its own, which is asked whether it is there when somebody wants to know.
inline Registration device_space(kernels::portable::SpaceDevice& space, const std::string& what) {
  Registration registration{{space.name(), BackendKind::device, true, false, "", kernels::portable::kokkos_version()},
                            [&space](const DeviceOptions& options) {
                              return make_space_device(space, options,
                                                       std::make_shared<kernels::portable::SpaceClaim>(space.name()));
                            }};
  registration.look = [&space, what](BackendInfo& info) {
    const std::string why_not = space.why_not();
    info.usable = why_not.empty();
    info.why = info.usable ? what + "; transports that reach host memory alone go through it" : why_not;
  };
  return registration;
}

}  // namespace distattn::backends
