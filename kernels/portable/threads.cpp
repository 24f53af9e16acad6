#include "kernels/portable/instance.hpp"

namespace distattn::kernels::portable {

template <>
inline constexpr bool takes_one_thread<Kokkos::Threads> = true;

}  // namespace distattn::kernels::portable

#include "kernels/portable/host_space.hpp"

namespace distattn::kernels::portable {

const HostKernels& threads_kernels() {
  static const HostKernels kernels = kernels_on<Kokkos::Threads>("kokkos:threads");
  return kernels;
}

}  // namespace distattn::kernels::portable
