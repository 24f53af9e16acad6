#include "kernels/cuda/hopper/attend.cuh"

#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {
namespace {

template <class Element, int head_dim, int value_dim, int columns, int heads = 1>
AttendKernel entry() {
  using Shape = HopperAttendShape<Element, head_dim, value_dim, HopperAttendTuning{.columns = columns, .heads = heads}>;
  return hopper_instance<Shape>(TilePass::forward, launch_hopper_attend<Shape>, describe_for_attend<Shape>);
}

}  // namespace

std::vector<AttendKernel> hopper_forward_instances() {
  return {entry<Bf16, 64, 64, 128, 2>(),   entry<Bf16, 64, 64, 128>(),      entry<Bf16, 96, 128, 128>(),
          entry<Bf16, 128, 128, 128, 2>(), entry<Bf16, 128, 128, 128>(),    entry<Bf16, 192, 128, 128>(),
          entry<Bf16, 256, 256, 80>(),     entry<Fp16, 64, 64, 128, 2>(),   entry<Fp16, 64, 64, 128>(),
          entry<Fp16, 96, 128, 128>(),     entry<Fp16, 128, 128, 128, 2>(), entry<Fp16, 128, 128, 128>(),
          entry<Fp16, 192, 128, 128>(),    entry<Fp16, 256, 256, 80>()};
}

}  // namespace distattn::kernels::cuda
