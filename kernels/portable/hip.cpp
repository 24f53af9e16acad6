#include <hip/hip_runtime_api.h>

#include "kernels/portable/device_space.hpp"

namespace distattn::kernels::portable {

template <>
inline constexpr bool has_instances<Kokkos::HIP> = true;
template <>
inline Kokkos::HIP new_instance<Kokkos::HIP>(int) {
  return Kokkos::Experimental::partition_space(Kokkos::HIP(), 1)[0];
}

template <>
struct DeviceTraits<Kokkos::HIP> {
  using Pinned = Kokkos::HIPHostPinnedSpace;
  static constexpr MemorySpace space = MemorySpace::other;
  static constexpr int team = 256;

  static int count() {
    int found = 0;
    return hipGetDeviceCount(&found) == hipSuccess ? found : 0;
  }
  static std::string why_not() {
    int found = 0;
    const hipError_t status = hipGetDeviceCount(&found);
    if (status != hipSuccess) return std::string("HIP finds no GPU (") + hipGetErrorString(status) + ")";
    return found > 0 ? "" : "this machine has no GPU that HIP can use";
  }
};

SpaceDevice& hip_device() {
  static auto* const only = new DeviceOn<Kokkos::HIP>("kokkos:hip");  // never destroyed: devices may be statics
  return *only;
}

}  // namespace distattn::kernels::portable
