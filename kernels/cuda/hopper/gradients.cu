#include "kernels/cuda/hopper/gradients.cuh"

#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {
namespace {

template <class Element, int dim, bool wants_dq>
AttendKernel entry() {
  using Shape = HopperGradientsShape<Element, dim, wants_dq>;
  constexpr TilePass pass = wants_dq ? TilePass::gradients : TilePass::key_gradients;
  return hopper_instance<Shape>(pass, launch_hopper_gradients<Shape>, describe_for_key_blocks<Shape>);
}

}  // namespace

std::vector<AttendKernel> hopper_gradients_instances() {
  return {entry<Bf16, 64, true>(),   entry<Bf16, 96, true>(),  entry<Bf16, 128, true>(), entry<Fp16, 64, true>(),
          entry<Fp16, 96, true>(),   entry<Fp16, 128, true>(), entry<Bf16, 64, false>(), entry<Bf16, 96, false>(),
          entry<Bf16, 128, false>(), entry<Fp16, 64, false>(), entry<Fp16, 96, false>(), entry<Fp16, 128, false>()};
}

}  // namespace distattn::kernels::cuda
