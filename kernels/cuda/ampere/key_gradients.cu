#include "kernels/cuda/ampere/key_gradients.cuh"

#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {
namespace {

template <class Element, int head_dim, int value_dim>
AttendKernel entry() {
  using Shape = KeyGradientsShape<Element, head_dim, value_dim>;
  return instance<Shape>(TilePass::key_gradients, 80, launch_key_gradients<Shape>);
}

template <class Element, int head_dim, int value_dim>
AttendKernel entry_in_halves() {
  return key_gradients_in_halves<KeyGradientsShape<Element, head_dim, value_dim, KeyGradients::of_keys>,
                                 KeyGradientsShape<Element, head_dim, value_dim, KeyGradients::of_values>>();
}

}  // namespace

std::vector<AttendKernel> key_gradients_instances() {
  return {entry<Bf16, 32, 32>(),   entry<Bf16, 64, 64>(),   entry<Bf16, 96, 96>(),
          entry<Bf16, 128, 128>(), entry<Bf16, 192, 128>(), entry_in_halves<Bf16, 256, 256>(),
          entry<Fp16, 32, 32>(),   entry<Fp16, 64, 64>(),   entry<Fp16, 96, 96>(),
          entry<Fp16, 128, 128>(), entry<Fp16, 192, 128>(), entry_in_halves<Fp16, 256, 256>()};
}

}  // namespace distattn::kernels::cuda
