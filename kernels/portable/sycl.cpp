#include <sycl/sycl.hpp>

#include "kernels/portable/device_space.hpp"

namespace distattn::kernels::portable {

#if KOKKOS_VERSION >= 40500
using Sycl = Kokkos::SYCL;
using SyclPinned = Kokkos::SYCLHostUSMSpace;
#else
using Sycl = Kokkos::Experimental::SYCL;
using SyclPinned = Kokkos::Experimental::SYCLHostUSMSpace;
#endif

template <>
inline constexpr bool has_instances<Sycl> = true;
template <>
inline Sycl new_instance<Sycl>(int) {
  return Kokkos::Experimental::partition_space(Sycl(), 1)[0];
}

template <>
struct DeviceTraits<Sycl> {
  using Pinned = SyclPinned;
  static constexpr MemorySpace space = MemorySpace::other;
  static constexpr int team = 128;

  static int count() { return static_cast<int>(sycl::device::get_devices(sycl::info::device_type::gpu).size()); }
  static std::string why_not() { return count() > 0 ? "" : "this machine has no GPU that SYCL can use"; }
};

SpaceDevice& sycl_device() {
  static auto* const only = new DeviceOn<Sycl>("kokkos:sycl");  // never destroyed: devices may be statics
  return *only;
}

}  // namespace distattn::kernels::portable
