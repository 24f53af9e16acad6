#include "kernels/cuda/plain.cuh"

#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {
namespace {

template <class Shape, void (*kernel)(AttendParams)>
int launch_plain(const AttendParams& params, unsigned grid, Stream stream) {
  return prim::launch(kernel, {grid, Shape::threads, Shape::shared_bytes}, stream, params);
}

template <class Shape>
std::vector<AttendKernel> entries() {
  return {instance<Shape>(TilePass::forward, 80, launch_plain<Shape, plain_attend<Shape>>),
          instance<Shape>(TilePass::query_gradient, 80, launch_plain<Shape, plain_query_gradient<Shape>>),
          instance<Shape>(TilePass::key_gradients, 80, launch_plain<Shape, plain_key_gradients<Shape>>)};
}

}  // namespace

std::vector<AttendKernel> plain_instances() { return entries<PlainShape<LinearScores, 256>>(); }
std::vector<AttendKernel> general_plain_instances() { return entries<PlainShape<GeneralScores, 256>>(); }
std::vector<AttendKernel> wide_plain_instances() { return entries<PlainShape<GeneralScores, 576>>(); }

}  // namespace distattn::kernels::cuda
