#include "backends/kokkos/spaces/space.hpp"

namespace distattn::backends {

Registration register_kokkos_openmp() {
  return host_space(kernels::portable::openmp_kernels(), "portable kernels on OpenMP's threads, each rank's its own");
}

}  // namespace distattn::backends
