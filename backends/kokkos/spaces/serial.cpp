#include "backends/kokkos/spaces/space.hpp"

namespace distattn::backends {

Registration register_kokkos_serial() {
  return host_space(kernels::portable::serial_kernels(), "portable kernels on one thread a rank");
}

}  // namespace distattn::backends
