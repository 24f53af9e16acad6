#include "kernels/cuda/hopper_wide_gradients.cuh"

#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {
namespace {

template <class Element, int head_dim, int value_dim, int queries>
AttendKernel entry() {
  using Shape = HopperWideGradientsShape<Element, head_dim, value_dim, queries>;
  return hopper_instance<Shape>(TilePass::key_gradients, launch_hopper_wide_gradients<Shape>,
                                describe_for_key_blocks<Shape>);
}

}  // namespace

std::vector<AttendKernel> hopper_wide_gradients_instances() {
  return {entry<Bf16, 192, 128, 96>(), entry<Bf16, 256, 256, 64>(), entry<Fp16, 192, 128, 96>(),
          entry<Fp16, 256, 256, 64>()};
}

}  // namespace distattn::kernels::cuda
