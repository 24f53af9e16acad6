#include <algorithm>

#include "kernels/cuda/hopper_attend.cuh"
#include "kernels/cuda/hopper_gradients.cuh"
#include "kernels/cuda/hopper_query_gradient.cuh"
#include "kernels/cuda/hopper_wide_gradients.cuh"
#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {
namespace {

AttendKernel named(std::string_view name, AttendKernel kernel) {
  kernel.variant = name;
  return kernel;
}

template <int head_dim, int value_dim, int columns, int groups = 2, int heads = 1>
AttendKernel forward(std::string_view name) {
  using Shape = HopperAttendShape<Bf16, head_dim, value_dim, columns, groups, heads>;
  return named(name,
               hopper_instance<Shape>(TilePass::forward, launch_hopper_attend<Shape>, describe_for_attend<Shape>));
}

/// The usual kernel on no more thread blocks than can run at once: they prepare one place while they end another, but
/// leave no multiprocessor to exchanges.
template <int head_dim, int value_dim, int columns>
AttendKernel persistent_forward() {
  using Shape = HopperAttendShape<Bf16, head_dim, value_dim, columns>;
  AttendKernel kernel = forward<head_dim, value_dim, columns>("persistent");
  kernel.launch = [](const AttendParams& params, unsigned grid, Stream stream) {
    return launch_hopper_attend<Shape>(params, std::min(grid, prim::multiprocessors()), stream);
  };
  return kernel;
}

template <int dim, bool dv_before_ds>
AttendKernel gradients(std::string_view name) {
  using Shape = HopperGradientsShape<Bf16, dim, true, dv_before_ds>;
  return named(name, hopper_instance<Shape>(TilePass::gradients, launch_hopper_gradients<Shape>,
                                            describe_for_key_blocks<Shape>));
}

template <int head_dim, int value_dim, int columns>
AttendKernel query_gradient(std::string_view name) {
  using Shape = HopperQueryGradientShape<Bf16, head_dim, value_dim, columns>;
  return named(name, hopper_instance<Shape>(TilePass::query_gradient, launch_hopper_query_gradient<Shape>,
                                            describe_for_query_gradient<Shape>));
}

template <int head_dim, int value_dim, int queries>
AttendKernel wide_gradients(std::string_view name) {
  using Shape = HopperWideGradientsShape<Bf16, head_dim, value_dim, queries>;
  return named(name, hopper_instance<Shape>(TilePass::key_gradients, launch_hopper_wide_gradients<Shape>,
                                            describe_for_key_blocks<Shape>));
}

}  // namespace

// Names say the tile, rows by columns, where it is another; of how many query heads, where of several that share keys.
std::vector<AttendKernel> hopper_variants() {
  return {forward<64, 64, 96>("128x96"),
          forward<64, 64, 160>("128x160"),
          forward<64, 64, 176>("128x176"),
          forward<64, 64, 192>("128x192"),
          forward<64, 64, 96, 3>("192x96"),
          forward<64, 64, 128, 2, 2>("64x128 of 2 heads"),
          persistent_forward<64, 64, 128>(),
          forward<128, 128, 96>("128x96"),
          forward<128, 128, 112>("128x112"),
          forward<128, 128, 144>("128x144"),
          forward<128, 128, 160>("128x160"),
          forward<128, 128, 176>("128x176"),
          forward<128, 128, 128, 2, 2>("64x128 of 2 heads"),
          persistent_forward<128, 128, 128>(),
          forward<256, 256, 48>("128x48"),
          gradients<128, false>("dv after ds"),
          query_gradient<64, 64, 96>("dq 128x96"),
          query_gradient<128, 128, 64>("dq 128x64"),
          query_gradient<128, 128, 80>("dq 128x80"),
          wide_gradients<192, 128, 64>("dk, dv 64x64"),
          wide_gradients<256, 256, 48>("dk, dv 64x48")};
}

}  // namespace distattn::kernels::cuda
