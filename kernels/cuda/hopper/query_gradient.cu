#include "kernels/cuda/hopper/query_gradient.cuh"

#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {
namespace {

template <class Element, int head_dim, int value_dim, int columns>
AttendKernel entry() {
  using Shape = HopperQueryGradientShape<Element, head_dim, value_dim, columns>;
  return hopper_instance<Shape>(TilePass::query_gradient, launch_hopper_query_gradient<Shape>,
                                describe_for_query_gradient<Shape>);
}

}  // namespace

// Columns: registers and shared memory have room for few more. hopper_variants.cu has others.
std::vector<AttendKernel> hopper_query_gradient_instances() {
  return {entry<Bf16, 64, 64, 128>(),  entry<Bf16, 96, 96, 96>(),   entry<Bf16, 128, 128, 96>(),
          entry<Bf16, 192, 128, 80>(), entry<Bf16, 256, 256, 48>(), entry<Fp16, 64, 64, 128>(),
          entry<Fp16, 96, 96, 96>(),   entry<Fp16, 128, 128, 96>(), entry<Fp16, 192, 128, 80>(),
          entry<Fp16, 256, 256, 48>()};
}

}  // namespace distattn::kernels::cuda
