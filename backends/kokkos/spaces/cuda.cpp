#include "backends/kokkos/spaces/space.hpp"

namespace distattn::backends {

Registration register_kokkos_cuda() {
  return device_space(kernels::portable::cuda_device(), "portable kernels on a GPU, by Kokkos's CUDA");
}

}  // namespace distattn::backends
