#include "kernels/cuda/hopper/wide_gradients.cuh"

#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {
namespace {

template <class Element, int head_dim, int value_dim, int queries, bool wants_dq>
AttendKernel entry() {
  using Shape = HopperWideGradientsShape<Element, head_dim, value_dim, queries, wants_dq>;
  constexpr TilePass pass = wants_dq ? TilePass::gradients : TilePass::key_gradients;
  return hopper_instance<Shape>(pass, launch_hopper_wide_gradients<Shape>, describe_for_key_blocks<Shape>);
}

}  // namespace

// dQ beside heads of 256 would need more shared memory than there is: these take two passes in any order.
std::vector<AttendKernel> hopper_wide_gradients_instances() {
  return {entry<Bf16, 192, 128, 64, true>(), entry<Bf16, 192, 128, 96, false>(), entry<Bf16, 256, 256, 64, false>(),
          entry<Fp16, 192, 128, 64, true>(), entry<Fp16, 192, 128, 96, false>(), entry<Fp16, 256, 256, 64, false>()};
}

}  // namespace distattn::kernels::cuda
