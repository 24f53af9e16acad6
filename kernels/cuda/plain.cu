#include "kernels/cuda/plain.cuh"

#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {
namespace {

/// What instance() asks of a shape.
template <class Map_>
struct PlainShape : Plain {
  using Element = float;
  using Map = Map_;  ///< of scores
  static constexpr int head_dim = largest_dim, value_dim = largest_dim;
};

template <void (*kernel)(AttendParams)>
int launch_plain(const AttendParams& params, unsigned grid, Stream stream) {
  return prim::launch(kernel, {grid, Plain::threads, Plain::shared_bytes}, stream, params);
}

template <class Map>
std::vector<AttendKernel> entries() {
  using Shape = PlainShape<Map>;
  return {instance<Shape>(TilePass::forward, 80, launch_plain<plain_attend<Map>>),
          instance<Shape>(TilePass::query_gradient, 80, launch_plain<plain_query_gradient<Map>>),
          instance<Shape>(TilePass::key_gradients, 80, launch_plain<plain_key_gradients<Map>>)};
}

}  // namespace

std::vector<AttendKernel> plain_instances() { return entries<LinearScores>(); }
std::vector<AttendKernel> general_plain_instances() { return entries<GeneralScores>(); }

}  // namespace distattn::kernels::cuda
