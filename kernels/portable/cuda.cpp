#include "kernels/portable/device_space.hpp"

namespace distattn::kernels::portable {

template <>
inline constexpr bool has_instances<Kokkos::Cuda> = true;
template <>
inline Kokkos::Cuda new_instance<Kokkos::Cuda>(int) {
  return Kokkos::Experimental::partition_space(Kokkos::Cuda(), 1)[0];
}

template <>
struct DeviceTraits<Kokkos::Cuda> {
  using Pinned = Kokkos::CudaHostPinnedSpace;
  static constexpr MemorySpace space = MemorySpace::cuda;
  static constexpr int team = 128;

  static int count() {
    int found = 0;
    return cudaGetDeviceCount(&found) == cudaSuccess ? found : 0;
  }
  static std::string why_not() {
    int found = 0;
    const cudaError_t status = cudaGetDeviceCount(&found);
    if (status != cudaSuccess) return std::string("CUDA finds no GPU (") + cudaGetErrorString(status) + ")";
    return found > 0 ? "" : "this machine has no GPU that CUDA can use";
  }
};

SpaceDevice& cuda_device() {
  static auto* const only = new DeviceOn<Kokkos::Cuda>("kokkos:cuda");  // never destroyed: devices may be statics
  return *only;
}

}  // namespace distattn::kernels::portable
