#pragma once
/// dQ: blocks own query rows and visit keys, as in the forward pass. Nothing is added atomically.

#include "kernels/cuda/ampere/key_stage.cuh"
#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/query_rows.cuh"
#include "kernels/cuda/tile_masks.cuh"
#include "kernels/cuda/tile_terms.cuh"

namespace distattn::kernels::cuda {

template <class Element_, int head_dim_, int value_dim_, class Map_ = LinearScores>
struct QueryGradientShape {
  using Element = Element_;
  using Map = Map_;  ///< of scores
  static constexpr int head_dim = head_dim_, value_dim = value_dim_;
  static constexpr int warps = head_dim > 192 ? 4 : 8;
  static constexpr int threads = warps * 32;
  static constexpr TileSize tile{warps * 16, head_dim > 128 ? 32 : 64};
  static constexpr int n_count = tile.columns / 8;

  static constexpr int q_bytes = SharedTile<head_dim>::bytes(tile.rows);
  static constexpr int do_bytes = SharedTile<value_dim>::bytes(tile.rows);
  static constexpr int k_bytes = SharedTile<head_dim>::bytes(tile.columns);
  static constexpr int v_bytes = SharedTile<value_dim>::bytes(tile.columns);
  static constexpr int shared_bytes = q_bytes + do_bytes + 2 * (k_bytes + v_bytes);
};

/// One stage of shared memory: a tile of keys and values.
template <class Shape>
struct KeyStage {
  std::uint32_t k, v;

  __device__ __forceinline__ KeyStage(std::uint32_t stages, int tile)
      : k(stages + static_cast<std::uint32_t>(tile % 2 * (Shape::k_bytes + Shape::v_bytes))), v(k + Shape::k_bytes) {}

  __device__ __forceinline__ void copy(const AttendParams& p, const TileCursor& tile, std::uint32_t plane) const {
    copy_keys<Shape>(k, p, tile, plane);
    copy_values<Shape>(v, p, tile, plane, {0, p.value_dim});
  }
};

/// ds: from products to their gradients but for the factor, of which dp has those of weights. A row that sees nothing
/// has lse -inf: only what is visible may have a gradient.
template <class Map, int n_count>
__device__ __forceinline__ void differentiate_rows(float (&ds)[1][n_count][4], const float (&dp)[1][n_count][4],
                                                   const RowStatistics& statistics, const Map& map,
                                                   const TileMasks<n_count>& masks,
                                                   const TileTerms<Map, Owner::queries, n_count>& terms) {
  const float unit = map.unit();
  map.derive([&](auto curve_of) {
    DISTATTN_UNROLL
    for (int n = 0; n < n_count; ++n) {
      DISTATTN_UNROLL
      for (int i = 0; i < 4; ++i) {
        const auto curve = curve_of(ds[0][n][i]);
        const float weight = weight_of(terms.biased(curve.level, 0, n, i), unit, statistics.lse[i / 2]);
        const float of_weight = terms.kept(dp[0][n][i], 0, n, i) - statistics.delta[i / 2];
        ds[0][n][i] = map.gradient(weight * of_weight, curve);
      }
    }
  });
  masks.hide(ds, 0.0f);
}

template <class Shape>
__global__ void __launch_bounds__(Shape::threads, 1) query_gradient(const __grid_constant__ AttendParams p) {
  using Element = typename Shape::Element;
  if (prim::any_thread(prim::raised(p.stop))) return;
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t q_tile = prim::shared_address(memory), do_tile = q_tile + Shape::q_bytes;
  const std::uint32_t stages = do_tile + Shape::do_bytes;
  const BlockPlace place(p, p.heads.q_count);
  const QuerySegment& query = p.queries[place.block.own];
  const std::int32_t row_begin = place.block.row_begin;
  const auto head_row = [&] { return first_row(place.batch, p.heads.q_count, place.head, query.run); };

  copy_tile<Shape::tile.rows, Shape::head_dim, Shape::threads>(
      q_tile, static_cast<const Element*>(query.q) + head_row() * p.head_dim, row_begin, query.run.count, p.head_dim);
  copy_tile<Shape::tile.rows, Shape::value_dim, Shape::threads>(
      do_tile, static_cast<const Element*>(query.d_o) + head_row() * p.value_dim, row_begin, query.run.count,
      p.value_dim);
  const std::uint32_t plane = key_plane(p, place);
  TileCursor next(p.visits, place.block);
  if (next.valid()) KeyStage<Shape>(stages, 0).copy(p, next, plane);
  prim::commit_copies();

  const RowStatistics statistics(query, row_begin, head_row());
  const int warp_row = first_row_of_warp<1>();
  float dq[1][held_columns<Shape, Shape::head_dim>() / 8][4];
  clear(dq);
  for (int tile = 0; next.valid(); ++tile) {
    const KeyStage<Shape> stage(stages, tile);
    const TileMasks<Shape::n_count> masks(p, next, row_begin);
    const TileTerms<typename Shape::Map, Owner::queries, Shape::n_count> terms(
        p, {place.batch, place.head, next.column}, query.run, row_begin, p.keys[next.other].run);
    prim::wait_for_copies<0>();
    __syncthreads();  // the current tile is everybody's, and nobody still reads the stage of the one before
    next.advance(p.visits, Shape::tile.columns);
    if (next.valid()) KeyStage<Shape>(stages, tile + 1).copy(p, next, plane);
    prim::commit_copies();

    float ds[1][Shape::n_count][4], dp[1][Shape::n_count][4];
    clear(ds);
    add_product_of_rows<Element, Shape::head_dim>(ds, q_tile, warp_row, stage.k);
    clear(dp);
    add_product_of_rows<Element, Shape::value_dim>(dp, do_tile, warp_row, stage.v);
    differentiate_rows(ds, dp, statistics, typename Shape::Map(p), masks, terms);
    add_product<Element, Shape::head_dim>(dq, ds, part_of_tile<Shape>(p, stage.k));
  }
  prim::wait_for_copies<0>();
  store_query_gradient<typename Shape::Map>(dq, p, query, row_begin, head_row(), column_part<Shape>(p, p.head_dim));
}

template <class Shape>
int launch_query_gradient(const AttendParams& params, unsigned grid, Stream stream) {
  return prim::launch(query_gradient<Shape>, {grid, Shape::threads, Shape::shared_bytes}, stream, params);
}

}  // namespace distattn::kernels::cuda
