#include "kernels/portable/instance.hpp"

#if KOKKOS_VERSION < 40200
#error "OpenMP needs Kokkos 4.2 or later, in which each rank has threads of its own"
#endif

namespace distattn::kernels::portable {

template <>
inline constexpr bool has_instances<Kokkos::OpenMP> = true;
template <>
inline Kokkos::OpenMP new_instance<Kokkos::OpenMP>(int threads) {
  return Kokkos::OpenMP(threads);
}

}  // namespace distattn::kernels::portable

#include "kernels/portable/host_space.hpp"

namespace distattn::kernels::portable {

const HostKernels& openmp_kernels() {
  static const HostKernels kernels = kernels_on<Kokkos::OpenMP>("kokkos:openmp");
  return kernels;
}

}  // namespace distattn::kernels::portable
