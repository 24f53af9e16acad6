#pragma once
/// dK and dV: blocks own keys of one key head and visit the queries of its query heads. Products are taken
/// transposed, keys by queries, so that weights and their gradients pass from one to the next in registers.

#include <algorithm>

#include "kernels/cuda/block_place.cuh"
#include "kernels/cuda/column_part.cuh"
#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/instances.hpp"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/scores.cuh"
#include "kernels/cuda/tile_masks.cuh"
#include "kernels/cuda/tile_terms.cuh"

namespace distattn::kernels::cuda {

/// Which gradients one kernel computes: registers do not hold both of the widest heads.
enum class KeyGradients : std::uint8_t { both, of_keys, of_values };

template <class Element_, int head_dim_, int value_dim_, KeyGradients gradients_ = KeyGradients::both,
          class Map_ = LinearScores>
struct KeyGradientsShape {
  using Element = Element_;
  using Map = Map_;  ///< of scores
  static constexpr int head_dim = head_dim_, value_dim = value_dim_;
  static constexpr bool wants_dk = gradients_ != KeyGradients::of_values;
  static constexpr bool wants_dv = gradients_ != KeyGradients::of_keys;
  static constexpr int warps = head_dim > 192 ? 4 : 8;
  static constexpr int threads = warps * 32;
  static constexpr TileSize tile{warps * 16, head_dim > 64 ? 32 : 64};
  static constexpr int n_count = tile.columns / 8;

  static constexpr int k_bytes = SharedTile<head_dim>::bytes(tile.rows);
  static constexpr int v_bytes = wants_dk ? SharedTile<value_dim>::bytes(tile.rows) : 0;
  static constexpr int q_bytes = SharedTile<head_dim>::bytes(tile.columns);
  static constexpr int do_bytes = SharedTile<value_dim>::bytes(tile.columns);
  static constexpr int lse_bytes = tile.columns * 8, delta_bytes = tile.columns * 4;
  static constexpr int stage_bytes = q_bytes + do_bytes + lse_bytes + delta_bytes;
  static constexpr int shared_bytes = k_bytes + v_bytes + 2 * stage_bytes;
};

/// One stage of shared memory: a tile of queries with their statistics.
template <class Shape>
struct QueryStage {
  std::uint32_t q, d_o, lse, delta;

  __device__ __forceinline__ QueryStage(std::uint32_t stages, int tile) {
    q = stages + static_cast<std::uint32_t>(tile % 2 * Shape::stage_bytes);
    d_o = q + Shape::q_bytes;
    lse = d_o + Shape::do_bytes;
    delta = lse + Shape::lse_bytes;
  }

  /// Starts to copy all but the lse of this thread's column, which it returns for put().
  __device__ __forceinline__ NaturalLse copy(const AttendParams& p, const HeadTileCursor& next, int batch) const {
    using Element = typename Shape::Element;
    const QuerySegment& query = p.queries[next.tile.other];
    const int column = next.tile.column;
    const std::int64_t row = first_row(batch, p.heads.q_count, next.head, query.run);
    copy_tile<Shape::tile.columns, Shape::head_dim, Shape::threads>(
        q, static_cast<const Element*>(query.q) + row * p.head_dim, column, query.run.count, p.head_dim);
    copy_tile<Shape::tile.columns, Shape::value_dim, Shape::threads>(
        d_o, static_cast<const Element*>(query.d_o) + row * p.value_dim, column, query.run.count, p.value_dim);
    const int thread = static_cast<int>(threadIdx.x);
    if (thread >= Shape::tile.columns) return {0, 0};
    const bool valid = column + thread < query.run.count;
    const std::int64_t at = valid ? row + column + thread : row;
    prim::copy_async_4(delta + static_cast<std::uint32_t>(thread * 4), query.delta + at, valid);
    return valid ? load_natural(query, at) : NaturalLse{0, 0};
  }
  __device__ __forceinline__ void put(const NaturalLse& natural) const {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread >= Shape::tile.columns) return;
    const Split split_lse = natural.least_in_log2();
    prim::store_shared(lse + static_cast<std::uint32_t>(thread * 8), Pair{split_lse.top, split_lse.rest});
  }
};

template <class Shape>
using ColumnTerms = TileTerms<typename Shape::Map, Owner::keys, Shape::n_count>;

/// From products to weights (in s), as they are applied, and the products' gradients but for the factor (in dp).
/// Statistics belong to columns here. A query that sees nothing has lse -inf: only what is visible may have a weight.
template <class Shape>
__device__ __forceinline__ void weigh_columns(float (&s)[1][Shape::n_count][4], float (&dp)[1][Shape::n_count][4],
                                              const QueryStage<Shape>& stage, const typename Shape::Map& map,
                                              const TileMasks<Shape::n_count>& masks, const ColumnTerms<Shape>& terms) {
  const float unit = map.unit();
  map.derive([&](auto curve_of) {
    DISTATTN_UNROLL
    for (int n = 0; n < Shape::n_count; ++n) {
      const auto offset = static_cast<std::uint32_t>((8 * n + column_of()) * 4);
      const Quad two = prim::load_shared<Quad>(stage.lse + 2 * offset);
      const Pair delta = prim::load_shared<Pair>(stage.delta + offset);
      const Split lse[2] = {{two.x, two.y}, {two.z, two.w}};
      DISTATTN_UNROLL
      for (int i = 0; i < 4; ++i) {
        const auto curve = curve_of(s[0][n][i]);
        const float weight = weight_of(terms.biased(curve.level, 0, n, i), unit, lse[i % 2]);
        const float of_weight = terms.kept(dp[0][n][i], 0, n, i) - (i % 2 == 0 ? delta.x : delta.y);
        dp[0][n][i] = map.gradient(weight * of_weight, curve);
        s[0][n][i] = terms.kept(weight, 0, n, i);
      }
    }
  });
  masks.hide(s, 0.0f);
  masks.hide(dp, 0.0f);
}

template <class Shape>
__global__ void __launch_bounds__(Shape::threads, 1) key_gradients(const __grid_constant__ AttendParams p) {
  using Element = typename Shape::Element;
  using Map = typename Shape::Map;
  if (prim::any_thread(prim::raised(p.stop))) return;
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t k_tile = prim::shared_address(memory), v_tile = k_tile + Shape::k_bytes;
  const std::uint32_t stages = v_tile + Shape::v_bytes;
  const BlockPlace place(p, p.heads.kv_count);
  const KeySegment& key = p.keys[place.block.own];
  const std::int32_t row_begin = place.block.row_begin;
  const auto head_row = [&](int head) { return first_row(place.batch, p.heads.kv_count, head, key.run); };

  copy_tile<Shape::tile.rows, Shape::head_dim, Shape::threads>(
      k_tile, static_cast<const Element*>(key.k) + head_row(place.head) * p.head_dim, row_begin, key.run.count,
      p.head_dim);
  if constexpr (Shape::wants_dk) {
    copy_tile<Shape::tile.rows, Shape::value_dim, Shape::threads>(
        v_tile, static_cast<const Element*>(key.v) + head_row(place.head) * p.value_stride, row_begin, key.run.count,
        p.value_dim, p.value_stride);
  }
  HeadTileCursor next(p, place);
  if (next.valid()) {
    const QueryStage<Shape> first(stages, 0);
    first.put(first.copy(p, next, place.batch));
  }
  prim::commit_copies();

  const int warp_row = first_row_of_warp<1>();
  float dk[1][Shape::wants_dk ? held_columns<Shape, Shape::head_dim>() / 8 : 1][4];
  float dv[1][Shape::wants_dv ? held_columns<Shape, Shape::value_dim>() / 8 : 1][4];
  clear(dk);
  clear(dv);
  for (int tile = 0; next.valid(); ++tile) {
    const QueryStage<Shape> stage(stages, tile);
    const TileMasks<Shape::n_count> masks(p, next.tile, row_begin);
    const ColumnTerms<Shape> terms(p, {place.batch, next.head, next.tile.column}, key.run, row_begin,
                                   p.queries[next.tile.other].run);
    prim::wait_for_copies<0>();
    __syncthreads();  // the current tile is everybody's, and nobody still reads the stage of the one before
    next.advance(p, place.block, Shape::tile.columns);
    const QueryStage<Shape> behind(stages, tile + 1);
    NaturalLse lse_behind{0, 0};
    if (next.valid()) lse_behind = behind.copy(p, next, place.batch);
    prim::commit_copies();

    float s[1][Shape::n_count][4], dp[1][Shape::n_count][4];
    clear(s);
    add_product_of_rows<Element, Shape::head_dim>(s, k_tile, warp_row, stage.q);
    behind.put(lse_behind);
    clear(dp);
    if constexpr (Shape::wants_dk) add_product_of_rows<Element, Shape::value_dim>(dp, v_tile, warp_row, stage.d_o);
    weigh_columns<Shape>(s, dp, stage, Map(p), masks, terms);
    if constexpr (Shape::wants_dv) add_product<Element, Shape::value_dim>(dv, s, part_of_tile<Shape>(p, stage.d_o));
    if constexpr (Shape::wants_dk) add_product<Element, Shape::head_dim>(dk, dp, part_of_tile<Shape>(p, stage.q));
  }
  prim::wait_for_copies<0>();
  // The place's head, as every key head has query heads: found again, because wide heads leave no register to keep it.
  const int head = p.heads.kv_of(next.last_head - 1);
  for_each_row<1>(row_begin, key.run.count, [&](int, int half, std::int64_t row) {
    if constexpr (Shape::wants_dk) {
      const ColumnPart columns = column_part<Shape>(p, p.head_dim);
      float* const into = key.dk + (head_row(head) + row) * p.head_dim + columns.first + column_of();
      store_row(into, dk[0], half, columns.count, Map(p).factor(), key.carry);
    }
    if constexpr (Shape::wants_dv) {
      const ColumnPart columns = column_part<Shape>(p, p.value_dim);
      float* const into = key.dv + (head_row(head) + row) * p.value_stride + columns.first + column_of();
      store_row(into, dv[0], half, columns.count, 1.0f, key.carry || p.values_lie_in_keys(key));
    }
  });
}

template <class Shape>
int launch_key_gradients(const AttendParams& params, unsigned grid, Stream stream) {
  return prim::launch(key_gradients<Shape>, {grid, Shape::threads, Shape::shared_bytes}, stream, params);
}

/// One kernel after the other, each with half of the accumulators.
template <class OfKeys, class OfValues>
AttendKernel key_gradients_in_halves() {
  const auto launch = [](const AttendParams& params, unsigned grid, Stream stream) {
    const int status = launch_key_gradients<OfKeys>(params, grid, stream);
    return status != 0 ? status : launch_key_gradients<OfValues>(params, grid, stream);
  };
  AttendKernel kernel = instance<OfKeys>(TilePass::key_gradients, 80, launch);
  kernel.shared_bytes = std::max(OfKeys::shared_bytes, OfValues::shared_bytes);
  return kernel;
}

}  // namespace distattn::kernels::cuda
