#include "backends/kokkos/spaces/space.hpp"

namespace distattn::backends {

Registration register_kokkos_hip() {
  return device_space(kernels::portable::hip_device(), "portable kernels on a GPU, by Kokkos's HIP");
}

}  // namespace distattn::backends
