#include "kernels/cuda/ampere/attend.cuh"
#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {
namespace {

template <class Element, int head_dim, int value_dim>
AttendKernel entry() {
  using Shape = AttendShape<Element, head_dim, value_dim>;
  return instance<Shape>(TilePass::forward, 80, launch_attend<Shape>);
}

}  // namespace

std::vector<AttendKernel> forward_instances() {
  return {entry<Bf16, 32, 32>(),   entry<Bf16, 64, 64>(),   entry<Bf16, 96, 96>(),   entry<Bf16, 128, 128>(),
          entry<Bf16, 192, 128>(), entry<Bf16, 256, 256>(), entry<Fp16, 32, 32>(),   entry<Fp16, 64, 64>(),
          entry<Fp16, 96, 96>(),   entry<Fp16, 128, 128>(), entry<Fp16, 192, 128>(), entry<Fp16, 256, 256>()};
}

}  // namespace distattn::kernels::cuda
