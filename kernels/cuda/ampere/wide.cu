/// Heads as wide as the latents of MLA: 576 numbers, of which 512 may be values. Tiles of them leave room for few rows,
/// and registers hold a part of the columns of results, so that scores are made again for each part.

#include "kernels/cuda/ampere/attend.cuh"
#include "kernels/cuda/ampere/key_gradients.cuh"
#include "kernels/cuda/ampere/query_gradient.cuh"
#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {
namespace {

constexpr int widest = 576;

template <class Element_>
struct WideAttendShape {
  using Element = Element_;
  using Map = GeneralScores;
  static constexpr int part_columns = 256;
  static constexpr int head_dim = widest, value_dim = part_columns;
  static constexpr int warps = 4, m_count = 1, threads = warps * 32, blocks = 1;
  static constexpr TileSize tile{warps * 16, 32};
  static constexpr int n_count = tile.columns / 8;

  static constexpr int q_bytes = SharedTile<head_dim>::bytes(tile.rows);
  static constexpr int k_bytes = SharedTile<head_dim>::bytes(tile.columns);
  static constexpr int v_bytes = SharedTile<value_dim>::bytes(tile.columns);
  static constexpr int shared_bytes = q_bytes + k_bytes + v_bytes;
  static_assert(shared_bytes + 1024 <= 164 * 1024);
};

/// Of a backward pass, whose tiles of queries and keys both have their outputs or values beside them.
template <class Element_>
struct WideGradientShape {
  using Element = Element_;
  using Map = GeneralScores;
  static constexpr int part_columns = 192;
  static constexpr int head_dim = widest, value_dim = widest;
  static constexpr int warps = 2, threads = warps * 32;
  static constexpr TileSize tile{warps * 16, 16};
  static constexpr int n_count = tile.columns / 8;
};

template <class Element>
struct WideQueryGradientShape : WideGradientShape<Element> {
  using Base = WideGradientShape<Element>;
  static constexpr int q_bytes = SharedTile<widest>::bytes(Base::tile.rows), do_bytes = q_bytes;
  static constexpr int k_bytes = SharedTile<widest>::bytes(Base::tile.columns), v_bytes = k_bytes;
  static constexpr int shared_bytes = q_bytes + do_bytes + 2 * (k_bytes + v_bytes);
  static_assert(shared_bytes + 1024 <= 164 * 1024);
};

template <class Element, KeyGradients gradients>
struct WideKeyGradientsShape : WideGradientShape<Element> {
  using Base = WideGradientShape<Element>;
  static constexpr bool wants_dk = gradients == KeyGradients::of_keys, wants_dv = !wants_dk;
  static constexpr int k_bytes = SharedTile<widest>::bytes(Base::tile.rows), v_bytes = wants_dk ? k_bytes : 0;
  static constexpr int q_bytes = SharedTile<widest>::bytes(Base::tile.columns), do_bytes = q_bytes;
  static constexpr int lse_bytes = Base::tile.columns * 8, delta_bytes = Base::tile.columns * 4;
  static constexpr int stage_bytes = (q_bytes + do_bytes + lse_bytes + delta_bytes + 127) / 128 * 128;
  static constexpr int shared_bytes = k_bytes + v_bytes + 2 * stage_bytes;
  static_assert(shared_bytes + 1024 <= 164 * 1024);
};

template <class Element>
AttendKernel forward() {
  using Shape = WideAttendShape<Element>;
  const auto launch = [](const AttendParams& params, unsigned grid, Stream stream) {
    return launch_parts<Shape>(launch_attend<Shape>, params, params.value_dim, grid, stream);
  };
  AttendKernel kernel = instance<Shape>(TilePass::forward, 80, launch);
  kernel.value_dim = widest;
  return kernel;
}

template <class Element>
AttendKernel of_queries() {
  using Shape = WideQueryGradientShape<Element>;
  const auto launch = [](const AttendParams& params, unsigned grid, Stream stream) {
    return launch_parts<Shape>(launch_query_gradient<Shape>, params, params.head_dim, grid, stream);
  };
  return instance<Shape>(TilePass::query_gradient, 80, launch);
}

template <class Element>
AttendKernel of_keys() {
  using OfKeys = WideKeyGradientsShape<Element, KeyGradients::of_keys>;
  using OfValues = WideKeyGradientsShape<Element, KeyGradients::of_values>;
  const auto launch = [](const AttendParams& params, unsigned grid, Stream stream) {
    const int status = launch_parts<OfKeys>(launch_key_gradients<OfKeys>, params, params.head_dim, grid, stream);
    if (status != 0) return status;
    return launch_parts<OfValues>(launch_key_gradients<OfValues>, params, params.value_dim, grid, stream);
  };
  return instance<OfKeys>(TilePass::key_gradients, 80, launch);
}

}  // namespace

std::vector<AttendKernel> wide_instances() {
  return {forward<Bf16>(), of_queries<Bf16>(), of_keys<Bf16>(), forward<Fp16>(), of_queries<Fp16>(), of_keys<Fp16>()};
}

}  // namespace distattn::kernels::cuda
