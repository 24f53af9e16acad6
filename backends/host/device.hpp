#pragma once
/// A device that computes steps in host memory with a table of kernels.

#include <memory>

#include "distattn/registry.hpp"
#include "kernels/kernels.hpp"

namespace distattn::backends {

/// `kernels` must outlive the device, which keeps `kept` as long as it is there. Steps are computed on the thread that
/// submits them and a team of helpers; an event is complete when submit returns. Once aborted, a device stays so.
std::unique_ptr<Device> make_host_device(const kernels::HostKernels& kernels, const DeviceOptions& options,
                                         std::shared_ptr<const void> kept = {});

}  // namespace distattn::backends
