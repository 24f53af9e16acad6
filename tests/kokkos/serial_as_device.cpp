#include "kernels/portable/device_space.hpp"
#include "kernels/portable/serial_instance.hpp"
#include "tests/kokkos/host_as_device.hpp"

namespace distattn::kernels::portable {

template <>
struct DeviceTraits<Kokkos::Serial> : test::HostTraits {
  using Pinned = Kokkos::HostSpace;
};

}  // namespace distattn::kernels::portable

namespace distattn::test {

kernels::portable::SpaceDevice& serial_as_device() {
  static auto* const only = new kernels::portable::DeviceOn<Kokkos::Serial>("kokkos:serial as a device");
  return *only;
}

}  // namespace distattn::test
