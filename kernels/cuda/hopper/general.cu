#include "kernels/cuda/hopper/attend.cuh"
#include "kernels/cuda/hopper/wide_gradients.cuh"
#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {
namespace {

template <class Element, int dim>
AttendKernel forward() {
  using Shape = HopperAttendShape<Element, dim, dim, HopperAttendTuning{}, GeneralScores>;
  return hopper_instance<Shape>(TilePass::forward, launch_hopper_attend<Shape>, describe_for_attend<Shape>);
}

/// Where a warpgroup sums both dK and dV, no register is left for more.
template <class Element, int dim>
AttendKernel gradients() {
  using Shape = HopperWideGradientsShape<Element, dim, dim, 64, true, GeneralScores>;
  return hopper_instance<Shape>(TilePass::gradients, launch_hopper_wide_gradients<Shape>,
                                describe_for_key_blocks<Shape>);
}

}  // namespace

// Wider heads, and gradients whose bits must not change, take the kernels for every generation.
std::vector<AttendKernel> hopper_general_instances() {
  return {forward<Bf16, 128>(), gradients<Bf16, 128>(), forward<Fp16, 128>(), gradients<Fp16, 128>()};
}

}  // namespace distattn::kernels::cuda
