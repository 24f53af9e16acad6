#pragma once
/// The portable kernels on Kokkos's execution spaces. One source serves all; a build has those that its Kokkos has.

#include <string>

#include "kernels/kernels.hpp"
#include "kernels/portable/device.hpp"

namespace distattn::kernels::portable {

/// What the portable kernels compute, on every space.
inline constexpr Features portable_features = element_types.with(score_features).with({Feature::shared_kv});

const HostKernels& serial_kernels();
const HostKernels& openmp_kernels();
const HostKernels& threads_kernels();
SpaceDevice& cuda_device();
SpaceDevice& hip_device();
SpaceDevice& sycl_device();

/// Held by whatever computes on a space: a process has one Kokkos, and its ranks compute on one space of it at a time.
class SpaceClaim {
 public:
  /// Throws Error(usage) where another space is claimed, and Error(environment) where Kokkos is gone.
  explicit SpaceClaim(std::string name);
  ~SpaceClaim();
  SpaceClaim(const SpaceClaim&) = delete;
  SpaceClaim& operator=(const SpaceClaim&) = delete;
};

}  // namespace distattn::kernels::portable
