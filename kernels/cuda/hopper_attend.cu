#include "kernels/cuda/hopper_attend.cuh"

#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {
namespace {

template <class Element, int head_dim, int value_dim, int columns>
AttendKernel entry() {
  using Shape = HopperAttendShape<Element, head_dim, value_dim, columns>;
  AttendKernel kernel = instance<Shape>(TilePass::forward, 90, launch_hopper_attend<Shape>);
  kernel.last_architecture = 90;
  kernel.describe = describe_for_attend<Shape>;
  return kernel;
}

}  // namespace

std::vector<AttendKernel> hopper_forward_instances() {
  return {entry<Bf16, 64, 64, 128>(),   entry<Bf16, 96, 128, 128>(),  entry<Bf16, 128, 128, 128>(),
          entry<Bf16, 192, 128, 128>(), entry<Bf16, 256, 256, 64>(),  entry<Fp16, 64, 64, 128>(),
          entry<Fp16, 96, 128, 128>(),  entry<Fp16, 128, 128, 128>(), entry<Fp16, 192, 128, 128>(),
          entry<Fp16, 256, 256, 64>()};
}

}  // namespace distattn::kernels::cuda
