#include "kernels/cuda/ampere/attend.cuh"
#include "kernels/cuda/ampere/key_gradients.cuh"
#include "kernels/cuda/ampere/query_gradient.cuh"
#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {
namespace {

template <class Element, int dim>
AttendKernel forward() {
  using Shape = AttendShape<Element, dim, dim, GeneralScores>;
  return instance<Shape>(TilePass::forward, 80, launch_attend<Shape>);
}

template <class Element, int dim>
AttendKernel of_queries() {
  using Shape = QueryGradientShape<Element, dim, dim, GeneralScores>;
  return instance<Shape>(TilePass::query_gradient, 80, launch_query_gradient<Shape>);
}

template <class Element, int dim>
AttendKernel of_keys() {
  using Shape = KeyGradientsShape<Element, dim, dim, KeyGradients::both, GeneralScores>;
  return instance<Shape>(TilePass::key_gradients, 80, launch_key_gradients<Shape>);
}

template <class Element, int dim>
AttendKernel of_keys_in_halves() {
  using OfKeys = KeyGradientsShape<Element, dim, dim, KeyGradients::of_keys, GeneralScores>;
  using OfValues = KeyGradientsShape<Element, dim, dim, KeyGradients::of_values, GeneralScores>;
  return key_gradients_in_halves<OfKeys, OfValues>();
}

}  // namespace

// Others are padded: scores that need this are rare, and compiling takes time.
std::vector<AttendKernel> general_instances() {
  return {forward<Bf16, 64>(),    forward<Bf16, 128>(),    forward<Bf16, 256>(),           forward<Fp16, 128>(),
          of_queries<Bf16, 64>(), of_queries<Bf16, 128>(), of_queries<Bf16, 256>(),        of_queries<Fp16, 128>(),
          of_keys<Bf16, 64>(),    of_keys<Bf16, 128>(),    of_keys_in_halves<Bf16, 256>(), of_keys<Fp16, 128>()};
}

}  // namespace distattn::kernels::cuda
