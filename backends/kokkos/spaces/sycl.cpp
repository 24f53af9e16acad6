#include "backends/kokkos/spaces/space.hpp"

namespace distattn::backends {

Registration register_kokkos_sycl() {
  return device_space(kernels::portable::sycl_device(), "portable kernels on a GPU, by Kokkos's SYCL");
}

}  // namespace distattn::backends
