#pragma once
/// Forward attention on tensor cores: FlashAttention-2's loop over key tiles, started from a carry (spec §2).

#include "kernels/cuda/block_place.cuh"
#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/key_stage.cuh"
#include "kernels/cuda/rows.cuh"

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

/// The online softmax of the rows that a lane holds: (o, log2-sum-exp) not yet divided by the sum.
template <class Shape>
struct SoftmaxRows {
  static constexpr int m_count = Shape::m_count, o_count = Shape::value_dim / 8;
  float top[m_count][2];  ///< largest score so far, in units of log2
  float sum[m_count][2];  ///< of 2^(score - top), over the columns of this lane
  float o[m_count][o_count][4];

  /// Turns a tile of products into weights 2^(score - top) and rescales what came before.
  __device__ __forceinline__ void take(float (&s)[m_count][Shape::n_count][4]) {
    DISTATTN_UNROLL
    for (int m = 0; m < m_count; ++m) {
      DISTATTN_UNROLL
      for (int half = 0; half < 2; ++half) {
        float largest = top[m][half];
        DISTATTN_UNROLL
        for (int n = 0; n < Shape::n_count; ++n) {
          largest = fmaxf(largest, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
        }
        largest = over_row(largest, [](float a, float b) { return fmaxf(a, b); });
        // A row that has seen nothing yet: every 2^(-inf) below is 0 and nothing is NaN.
        const float base = largest == -INFINITY ? 0.0f : largest;
        const float rescale = prim::ex2(top[m][half] - base);
        top[m][half] = largest;
        sum[m][half] *= rescale;
        DISTATTN_UNROLL
        for (int n = 0; n < Shape::n_count; ++n) {
          DISTATTN_UNROLL
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            s[m][n][i] = prim::ex2(s[m][n][i] - base);
            sum[m][half] += s[m][n][i];
          }
        }
        DISTATTN_UNROLL
        for (int n = 0; n < o_count; ++n) {
          o[m][n][2 * half] *= rescale;
          o[m][n][2 * half + 1] *= rescale;
        }
      }
    }
  }
};

template <class Shape>
__device__ __forceinline__ void start_rows(SoftmaxRows<Shape>& rows, const AttendParams& p, const QuerySegment& query,
                                           std::int64_t row_begin, std::int64_t head_row) {
  clear(rows.o);
  DISTATTN_UNROLL
  for (int m = 0; m < Shape::m_count; ++m) rows.top[m][0] = rows.top[m][1] = -INFINITY;
  DISTATTN_UNROLL
  for (int m = 0; m < Shape::m_count; ++m) rows.sum[m][0] = rows.sum[m][1] = 0;
  if (!query.carry) return;
  for_each_row<Shape::m_count>(row_begin, query.run.count, [&](int m, int half, std::int64_t row) {
    if (column_of() == 0) rows.top[m][half] = prim::load_global(query.lse + head_row + row) * log2_e;
  });
  DISTATTN_UNROLL
  for (int m = 0; m < Shape::m_count; ++m) {
    DISTATTN_UNROLL
    for (int half = 0; half < 2; ++half) {
      rows.sum[m][half] = rows.top[m][half] == -INFINITY ? 0.0f : 1.0f;  // once among the lanes that share the row
      rows.top[m][half] = from_first_of_row(rows.top[m][half]);
    }
  }
  for_each_row<Shape::m_count>(row_begin, query.run.count, [&](int m, int half, std::int64_t row) {
    const float* const o = query.o + (head_row + row) * p.value_dim + column_of();
    DISTATTN_UNROLL
    for (int n = 0; n < Shape::value_dim / 8; ++n) {
      if (8 * n >= p.value_dim) break;
      const Pair carried = prim::load_global(reinterpret_cast<const Pair*>(o + 8 * n));
      rows.o[m][n][2 * half] = carried.x;
      rows.o[m][n][2 * half + 1] = carried.y;
    }
  });
}

template <class Shape>
__device__ __forceinline__ void store_rows(SoftmaxRows<Shape>& rows, const AttendParams& p, const QuerySegment& query,
                                           std::int64_t row_begin, std::int64_t head_row) {
  DISTATTN_UNROLL
  for (int m = 0; m < Shape::m_count; ++m) {
    DISTATTN_UNROLL
    for (int half = 0; half < 2; ++half) {
      rows.sum[m][half] = over_row(rows.sum[m][half], [](float a, float b) { return a + b; });
    }
  }
  for_each_row<Shape::m_count>(row_begin, query.run.count, [&](int m, int half, std::int64_t row) {
    const float sum = rows.sum[m][half];
    const bool empty = sum == 0;
    const float scale = empty ? 0.0f : 1.0f / sum;
    float* const o = query.o + (head_row + row) * p.value_dim + column_of();
    store_row<Shape::value_dim>(o, rows.o[m], half, p.value_dim, scale, false);
    if (column_of() != 0) return;
    prim::store_global(query.lse + head_row + row, empty ? -INFINITY : (rows.top[m][half] + prim::lg2(sum)) * ln_2);
  });
}

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
    rows.take(s);
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
