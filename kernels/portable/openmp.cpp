#include "kernels/portable/openmp_instance.hpp"

#if KOKKOS_VERSION < 40200
#error "OpenMP needs Kokkos 4.2 or later, in which each rank has threads of its own"
#endif

#include "kernels/portable/host_space.hpp"

namespace distattn::kernels::portable {

const HostKernels& openmp_kernels() {
  static const HostKernels kernels = kernels_on<Kokkos::OpenMP>("kokkos:openmp");
  return kernels;
}

}  // namespace distattn::kernels::portable
