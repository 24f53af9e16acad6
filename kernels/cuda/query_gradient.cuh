#pragma once
/// dQ: blocks own query rows and visit keys, as in the forward pass. Nothing is added atomically.

#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/key_stage.cuh"
#include "kernels/cuda/query_rows.cuh"

namespace distattn::kernels::cuda {

template <class Element_, int head_dim_, int value_dim_>
struct QueryGradientShape {
  using Element = Element_;
  static constexpr int head_dim = head_dim_, value_dim = value_dim_;
  static constexpr int warps = head_dim > 192 ? 4 : 8;
  static constexpr int threads = warps * 32;
  static constexpr TileSize tile{warps * 16, head_dim > 128 ? 32 : 64};
  static constexpr int n_count = tile.columns / 8;

  static constexpr int q_bytes = SharedTile<head_dim>::bytes(tile.rows);
  static constexpr int do_bytes = SharedTile<value_dim>::bytes(tile.rows);
  static constexpr int shared_bytes = q_bytes + do_bytes + 2 * KeyStage<QueryGradientShape>::bytes;
};

template <class Shape>
__global__ void __launch_bounds__(Shape::threads, 1) query_gradient(const __grid_constant__ AttendParams p) {
  using Element = typename Shape::Element;
  if (prim::any_thread(prim::raised(p.stop))) return;
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t q_tile = prim::shared_address(memory), do_tile = q_tile + Shape::q_bytes;
  const std::uint32_t stages = do_tile + Shape::do_bytes;
  const BlockPlace place(p, p.heads.q_count);
  const QuerySegment& query = p.queries[place.block.own];
  const std::int64_t row_begin = place.block.row_begin;
  const std::int64_t head_row = first_row(place.batch, p.heads.q_count, place.head, query.run);

  copy_tile<Shape::tile.rows, Shape::head_dim, Shape::threads>(
      q_tile, static_cast<const Element*>(query.q) + head_row * p.head_dim, row_begin, query.run.count, p.head_dim);
  copy_tile<Shape::tile.rows, Shape::value_dim, Shape::threads>(
      do_tile, static_cast<const Element*>(query.d_o) + head_row * p.value_dim, row_begin, query.run.count,
      p.value_dim);
  TileCursor next(p.visits, place.block);
  if (next.valid()) KeyStage<Shape>(stages, 0).copy(p, next, place);
  prim::commit_copies();

  const RowStatistics statistics(query, row_begin, head_row);
  const int warp_row = row_of<1>(0, 0) / 16 * 16;
  float dq[1][Shape::head_dim / 8][4];
  clear(dq);
  for (int tile = 0; next.valid(); ++tile) {
    const KeyStage<Shape> stage(stages, tile);
    const Visit& visit = p.visits[next.visit];
    const int column = next.column;
    prim::wait_for_copies<0>();
    __syncthreads();  // the current tile is everybody's, and nobody still reads the stage of the one before
    next.advance(p.visits, Shape::tile.columns);
    if (next.valid()) KeyStage<Shape>(stages, tile + 1).copy(p, next, place);
    prim::commit_copies();

    const RowMasks<1> masks(p.bands, visit, column, query.run, row_begin, p.keys[visit.other].run);
    float ds[1][Shape::n_count][4], dp[1][Shape::n_count][4];
    clear(ds);
    add_product_of_rows<Element, Shape::head_dim>(ds, q_tile, warp_row, stage.k);
    clear(dp);
    add_product_of_rows<Element, Shape::value_dim>(dp, do_tile, warp_row, stage.v);
    DISTATTN_UNROLL
    for (int n = 0; n < Shape::n_count; ++n) {
      DISTATTN_UNROLL
      for (int i = 0; i < 4; ++i) {
        // A row that sees nothing has lse -inf: only what is visible may have a weight.
        const float weight = prim::ex2(ds[0][n][i] * (p.scale * log2_e) - statistics.lse[i / 2]);
        ds[0][n][i] = masks.sees(0, n, i) ? weight * (dp[0][n][i] - statistics.delta[i / 2]) : 0.0f;
      }
    }
    add_product<Element, Shape::head_dim>(dq, ds, stage.k);
  }
  prim::wait_for_copies<0>();
  store_query_gradient(dq, p, query, row_begin, head_row);
}

template <class Shape>
int launch_query_gradient(const AttendParams& params, unsigned grid, Stream stream) {
  return prim::launch(query_gradient<Shape>, {grid, Shape::threads, Shape::shared_bytes}, stream, params);
}

}  // namespace distattn::kernels::cuda
