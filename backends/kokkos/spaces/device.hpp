#pragma once
/// A device that computes steps on a space of Kokkos with memory of its own.

#include <memory>

#include "distattn/registry.hpp"
#include "kernels/portable/device.hpp"

namespace distattn::backends {

/// `space` must outlive the device. Steps are started on one instance of the space; what they send and receive goes
/// through the host's memory where the transport does not reach the space's. Once aborted, a device stays so. `kept` is
/// kept as long as the device.
std::unique_ptr<Device> make_space_device(kernels::portable::SpaceDevice& space, const DeviceOptions& options,
                                          std::shared_ptr<const void> kept = {});

}  // namespace distattn::backends
