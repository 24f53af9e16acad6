#include "backends/kokkos/spaces/space.hpp"

namespace distattn::backends {

Registration register_kokkos_threads() {
  return host_space(kernels::portable::threads_kernels(),
                    "portable kernels on Kokkos's own threads, which ranks of a process use in turn");
}

}  // namespace distattn::backends
