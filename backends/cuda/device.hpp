#pragma once
/// A device that computes steps on a GPU.

#include <memory>

#include "backends/cuda/attend_provider.hpp"
#include "backends/cuda/driver.hpp"
#include "distattn/registry.hpp"

namespace distattn::backends::cuda {

/// `driver` must outlive the device. Steps are started on one stream, GpuOptions::stream if it is given; an event
/// is complete when the GPU says so. Several devices may share a GPU. Once aborted, a device stays so.
/// `provider` computes tiles; null: the project's own kernels.
std::unique_ptr<Device> make_cuda_device(Driver& driver, const DeviceOptions& options,
                                         std::unique_ptr<AttendProvider> provider = nullptr);

}  // namespace distattn::backends::cuda
