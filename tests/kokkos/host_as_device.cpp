#include "tests/kokkos/host_as_device.hpp"

#include "kernels/portable/device_space.hpp"

namespace distattn::kernels::portable {

/// Memory that no transport reaches, nor anything but the space's own copies.
struct HostTraits {
  using Pinned = Kokkos::HostSpace;
  static constexpr MemorySpace space = MemorySpace::other;
  static constexpr int team = 0;

  static std::string why_not() { return ""; }
  static int count() { return 0; }
};

template <>
struct DeviceTraits<Kokkos::Serial> : HostTraits {};

#if defined(KOKKOS_ENABLE_OPENMP) && KOKKOS_VERSION >= 40200
template <>
inline constexpr bool has_instances<Kokkos::OpenMP> = true;
template <>
inline Kokkos::OpenMP new_instance<Kokkos::OpenMP>(int threads) {
  return Kokkos::OpenMP(threads);
}
template <>
struct DeviceTraits<Kokkos::OpenMP> : HostTraits {};
#endif

}  // namespace distattn::kernels::portable

namespace distattn::test {

const std::vector<kernels::portable::SpaceDevice*>& hosts_as_devices() {
  using namespace kernels::portable;
  static const auto* const all = [] {
    auto* const made = new std::vector<SpaceDevice*>{new DeviceOn<Kokkos::Serial>("kokkos:serial as a device")};
#if defined(KOKKOS_ENABLE_OPENMP) && KOKKOS_VERSION >= 40200
    made->push_back(new DeviceOn<Kokkos::OpenMP>("kokkos:openmp as a device"));
#endif
    return made;
  }();
  return *all;
}

}  // namespace distattn::test
