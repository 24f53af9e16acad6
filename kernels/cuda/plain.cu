#include "kernels/cuda/plain.cuh"

#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {
namespace {

/// What instance() asks of a shape.
struct PlainShape : Plain {
  using Element = float;
  static constexpr int head_dim = largest_dim, value_dim = largest_dim;
};

template <void (*kernel)(AttendParams)>
int launch_plain(const AttendParams& params, unsigned grid, Stream stream) {
  return prim::launch(kernel, {grid, Plain::threads, Plain::shared_bytes}, stream, params);
}

}  // namespace

std::vector<AttendKernel> plain_instances() {
  return {instance<PlainShape>(TilePass::forward, 80, launch_plain<plain_attend>),
          instance<PlainShape>(TilePass::query_gradient, 80, launch_plain<plain_query_gradient>),
          instance<PlainShape>(TilePass::key_gradients, 80, launch_plain<plain_key_gradients>)};
}

}  // namespace distattn::kernels::cuda
