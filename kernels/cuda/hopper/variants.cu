#include "kernels/cuda/hopper/attend.cuh"
#include "kernels/cuda/hopper/gradients.cuh"
#include "kernels/cuda/hopper/query_gradient.cuh"
#include "kernels/cuda/hopper/wide_gradients.cuh"
#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {
namespace {

AttendKernel on_request(AttendKernel kernel) {
  kernel.on_request = true;
  return kernel;
}

template <int head_dim, int value_dim, HopperAttendTuning tuning>
AttendKernel forward() {
  using Shape = HopperAttendShape<Bf16, head_dim, value_dim, tuning>;
  AttendKernel kernel =
      hopper_instance<Shape>(TilePass::forward, launch_hopper_attend<Shape>, describe_for_attend<Shape>);
  if (tuning.stages > 2) kernel.name += " in " + std::to_string(tuning.stages) + " stages";
  if (tuning.persistent) kernel.name += " persistent";
  if (tuning.turn_ends == TurnEnds::at_scores) kernel.name += " turns end at scores";
  return on_request(std::move(kernel));
}

template <int dim, DvOrder order>
AttendKernel gradients() {
  using Shape = HopperGradientsShape<Bf16, dim, true, order>;
  AttendKernel kernel =
      hopper_instance<Shape>(TilePass::gradients, launch_hopper_gradients<Shape>, describe_for_key_blocks<Shape>);
  kernel.name += order == DvOrder::in_halves ? " dv in halves" : " dv after ds";
  return on_request(std::move(kernel));
}

template <int head_dim, int value_dim, int columns>
AttendKernel query_gradient() {
  using Shape = HopperQueryGradientShape<Bf16, head_dim, value_dim, columns>;
  return on_request(hopper_instance<Shape>(TilePass::query_gradient, launch_hopper_query_gradient<Shape>,
                                           describe_for_query_gradient<Shape>));
}

template <int head_dim, int value_dim, int queries>
AttendKernel wide_gradients() {
  using Shape = HopperWideGradientsShape<Bf16, head_dim, value_dim, queries, false>;
  return on_request(hopper_instance<Shape>(TilePass::key_gradients, launch_hopper_wide_gradients<Shape>,
                                           describe_for_key_blocks<Shape>));
}

}  // namespace

// Register splits follow from the number of warpgroups: no other leaves the ones that multiply without spills.
std::vector<AttendKernel> hopper_variants() {
  return {forward<64, 64, HopperAttendTuning{.columns = 96}>(),
          forward<64, 64, HopperAttendTuning{.columns = 160}>(),
          forward<64, 64, HopperAttendTuning{.columns = 176}>(),
          forward<64, 64, HopperAttendTuning{.columns = 192}>(),
          forward<64, 64, HopperAttendTuning{.columns = 96, .groups = 3}>(),
          forward<64, 64, HopperAttendTuning{.columns = 128, .stages = 3}>(),
          forward<64, 64, HopperAttendTuning{.columns = 176, .stages = 3}>(),
          forward<64, 64, HopperAttendTuning{.columns = 128, .persistent = true}>(),
          forward<128, 128, HopperAttendTuning{.columns = 96}>(),
          forward<128, 128, HopperAttendTuning{.columns = 112}>(),
          forward<128, 128, HopperAttendTuning{.columns = 144}>(),
          forward<128, 128, HopperAttendTuning{.columns = 160}>(),
          forward<128, 128, HopperAttendTuning{.columns = 112, .stages = 3}>(),
          forward<128, 128, HopperAttendTuning{.columns = 128, .stages = 3}>(),
          forward<128, 128, HopperAttendTuning{.columns = 128, .persistent = true}>(),
          forward<128, 128, HopperAttendTuning{.columns = 176}>(),
          forward<128, 128, HopperAttendTuning{.columns = 128, .turn_ends = TurnEnds::at_scores}>(),
          forward<128, 128, HopperAttendTuning{.columns = 176, .turn_ends = TurnEnds::at_scores}>(),
          forward<256, 256, HopperAttendTuning{.columns = 64}>(),
          gradients<64, DvOrder::after_ds>(),
          gradients<128, DvOrder::in_halves>(),
          gradients<128, DvOrder::after_ds>(),
          query_gradient<64, 64, 96>(),
          query_gradient<64, 64, 112>(),
          query_gradient<128, 128, 64>(),
          query_gradient<128, 128, 80>(),
          query_gradient<128, 128, 112>(),
          wide_gradients<192, 128, 64>(),
          wide_gradients<256, 256, 48>()};
}

}  // namespace distattn::kernels::cuda
