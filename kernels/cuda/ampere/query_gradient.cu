#include "kernels/cuda/ampere/query_gradient.cuh"
#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {
namespace {

template <class Element, int head_dim, int value_dim>
AttendKernel entry() {
  using Shape = QueryGradientShape<Element, head_dim, value_dim>;
  return instance<Shape>(TilePass::query_gradient, 80, launch_query_gradient<Shape>);
}

}  // namespace

std::vector<AttendKernel> query_gradient_instances() {
  return {entry<Bf16, 32, 32>(),   entry<Bf16, 64, 64>(),   entry<Bf16, 96, 96>(),   entry<Bf16, 128, 128>(),
          entry<Bf16, 192, 128>(), entry<Bf16, 256, 256>(), entry<Fp16, 32, 32>(),   entry<Fp16, 64, 64>(),
          entry<Fp16, 96, 96>(),   entry<Fp16, 128, 128>(), entry<Fp16, 192, 128>(), entry<Fp16, 256, 256>()};
}

}  // namespace distattn::kernels::cuda
