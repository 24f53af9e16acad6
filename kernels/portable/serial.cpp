#include "kernels/portable/serial_instance.hpp"

#include "kernels/portable/host_space.hpp"

namespace distattn::kernels::portable {

const HostKernels& serial_kernels() {
  static const HostKernels kernels = kernels_on<Kokkos::Serial>("kokkos:serial");
  return kernels;
}

}  // namespace distattn::kernels::portable
