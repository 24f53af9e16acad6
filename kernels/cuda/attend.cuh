#pragma once
/// Forward attention on tensor cores: FlashAttention-2's loop over key tiles, started from a carry.

#include "kernels/cuda/block_place.cuh"
#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/key_stage.cuh"
#include "kernels/cuda/softmax_rows.cuh"

namespace distattn::kernels::cuda {

/// How the threads of a block share its tiles. head_dim and value_dim are the paddings of the real ones.
template <class Element_, int head_dim_, int value_dim_>
struct AttendShape {
  using Element = Element_;
  static constexpr int head_dim = head_dim_, value_dim = value_dim_;
  static constexpr bool wide = head_dim > 128;
  static constexpr int warps = wide ? 8 : 4;
  static constexpr int m_count = wide ? 1 : 2;  ///< a warp's rows / 16: two where registers allow, to halve loads
  static constexpr int threads = warps * 32;
  static constexpr TileSize tile{warps * m_count * 16, head_dim > 192 ? 32 : 64};
  static constexpr int n_count = tile.columns / 8;

  static constexpr int q_bytes = SharedTile<head_dim>::bytes(tile.rows);
  static constexpr int shared_bytes = q_bytes + 2 * KeyStage<AttendShape>::bytes;
};

/// Scales products to scores in units of log2; what is not visible becomes -inf.
template <int m_count, int n_count>
__device__ __forceinline__ void scale_scores(float (&s)[m_count][n_count][4], float scale,
                                             const RowMasks<m_count>& masks) {
  DISTATTN_UNROLL
  for (int m = 0; m < m_count; ++m) {
    DISTATTN_UNROLL
    for (int n = 0; n < n_count; ++n) {
      DISTATTN_UNROLL
      for (int i = 0; i < 4; ++i) s[m][n][i] = masks.sees(m, n, i) ? s[m][n][i] * scale : -INFINITY;
    }
  }
}

template <class Shape>
__global__ void __launch_bounds__(Shape::threads, 1) attend(const __grid_constant__ AttendParams p) {
  using Element = typename Shape::Element;
  if (prim::any_thread(prim::raised(p.stop))) return;
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t q_tile = prim::shared_address(memory), stages = q_tile + Shape::q_bytes;
  const BlockPlace place(p, p.heads.q_count);
  const QuerySegment& query = p.queries[place.block.own];
  const std::int64_t head_row = first_row(place.batch, p.heads.q_count, place.head, query.run);

  copy_tile<Shape::tile.rows, Shape::head_dim, Shape::threads>(
      q_tile, static_cast<const Element*>(query.q) + head_row * p.head_dim, place.block.row_begin, query.run.count,
      p.head_dim);
  TileCursor next(p.visits, place.block);
  if (next.valid()) KeyStage<Shape>(stages, 0).copy(p, next, place);
  prim::commit_copies();

  SoftmaxRows<Shape> rows;
  start_rows(rows, p, query, place.block.row_begin, head_row);
  for (int tile = 0; next.valid(); ++tile) {
    const KeyStage<Shape> stage(stages, tile);
    const Visit& visit = p.visits[next.visit];
    const int column = next.column;
    prim::wait_for_copies<0>();
    __syncthreads();  // the current tile is everybody's, and nobody still reads the stage of the one before
    next.advance(p.visits, Shape::tile.columns);
    if (next.valid()) KeyStage<Shape>(stages, tile + 1).copy(p, next, place);
    prim::commit_copies();

    const RowMasks<Shape::m_count> masks(p.bands, visit, column, query.run, place.block.row_begin,
                                         p.keys[visit.other].run);
    float s[Shape::m_count][Shape::n_count][4];
    clear(s);
    add_product_of_rows<Element, Shape::head_dim>(s, q_tile, row_of<Shape::m_count>(0, 0) / 16 * 16, stage.k);
    scale_scores(s, p.scale * log2_e, masks);
    float rescale[Shape::m_count][2];
    rows.weigh(s, 1.0f, rescale);
    rows.rescale_outputs(rescale);
    add_product<Element, Shape::value_dim>(rows.o, s, stage.v);
  }
  prim::wait_for_copies<0>();
  store_rows(rows, p, query, place.block.row_begin, head_row);
}

/// Starts the kernel; returns the CUDA runtime's status.
template <class Shape>
int launch_attend(const AttendParams& params, unsigned grid, Stream stream) {
  return prim::launch(attend<Shape>, {grid, Shape::threads, Shape::shared_bytes}, stream, params);
}

}  // namespace distattn::kernels::cuda
