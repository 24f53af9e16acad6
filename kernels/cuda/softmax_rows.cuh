#pragma once
/// The rows of a forward pass that a lane holds: started from a carry, fed with tiles of scores, written.

#include "kernels/cuda/block_place.cuh"
#include "kernels/cuda/column_part.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/scores.cuh"
#include "kernels/cuda/statistics.cuh"
#include "kernels/cuda/tile_masks.cuh"
#include "kernels/cuda/tile_terms.cuh"

namespace distattn::kernels::cuda {

/// From products to rising levels, -inf where nothing is visible.
template <class Map, int m_count, int n_count>
__device__ __forceinline__ void make_levels(float (&s)[m_count][n_count][4], const Map& map,
                                            const TileMasks<n_count, m_count>& masks,
                                            const TileTerms<Map, Owner::queries, n_count, m_count>& terms) {
  map.make_rising(s);
  terms.add_bias(s);
  masks.hide(s, -INFINITY);
}

/// Shows what rows inside the segment see.
template <int m_count, int n_count>
__device__ __forceinline__ void see_levels(NoLargest&, const float (&)[m_count][n_count][4], const AttendParams&,
                                           std::int32_t, const Run&) {}
template <int m_count, int n_count>
__device__ __forceinline__ void see_levels(LargestLevel& largest, const float (&s)[m_count][n_count][4],
                                           const AttendParams& p, std::int32_t row_begin, const Run& own) {
  if (p.terms.largest == nullptr) return;
  for_each_row<m_count>(row_begin, own.count, [&](int m, int half, std::int64_t) {
    DISTATTN_UNROLL
    for (int n = 0; n < n_count; ++n) {
      largest.see(s[m][n][2 * half]);
      largest.see(s[m][n][2 * half + 1]);
    }
  });
}

/// The online softmax of the rows that a lane holds: (o, log2-sum-exp) not yet divided by the sum.
template <class Shape>
struct SoftmaxRows {
  static constexpr int m_count = Shape::m_count, o_count = Shape::value_dim / 8;
  Split top[m_count][2];  ///< largest score so far, in units of log2
  float sum[m_count][2];  ///< of 2^(score - top), over the columns of this lane
  float o[m_count][o_count][4];

  /// Turns levels into weights 2^(score - top), none above 1: a score is its level times `unit` > 0. Sums are
  /// rescaled to the new top; outputs are still to be, by `rescale`.
  __device__ __forceinline__ void weigh(float (&s)[m_count][Shape::n_count][4], float unit,
                                        float (&rescale)[m_count][2]) {
    DISTATTN_UNROLL
    for (int m = 0; m < m_count; ++m) {
      DISTATTN_UNROLL
      for (int half = 0; half < 2; ++half) {
        float largest = -INFINITY;
        DISTATTN_UNROLL
        for (int n = 0; n < Shape::n_count; ++n) {
          largest = fmaxf(largest, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
        }
        largest = over_row(largest, [](float a, float b) { return fmaxf(a, b); });
        const RunningTop next(top[m][half], largest, unit);
        top[m][half] = next.top;
        rescale[m][half] = next.rescale;
        sum[m][half] *= next.rescale;
        DISTATTN_UNROLL
        for (int n = 0; n < Shape::n_count; ++n) {
          DISTATTN_UNROLL
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            s[m][n][i] = prim::ex2(exponent_of(s[m][n][i], unit, next.top));
            sum[m][half] += s[m][n][i];
          }
        }
      }
    }
  }

  __device__ __forceinline__ void rescale_outputs(const float (&rescale)[m_count][2]) {
    DISTATTN_UNROLL
    for (int m = 0; m < m_count; ++m) {
      DISTATTN_UNROLL
      for (int n = 0; n < o_count; ++n) {
        DISTATTN_UNROLL
        for (int i = 0; i < 4; ++i) o[m][n][i] *= rescale[m][i / 2];
      }
    }
  }
};

/// What outputs are multiplied by that weights are not: the factor of those that dropout keeps.
template <class Map>
__device__ __forceinline__ float output_factor(const AttendParams& p) {
  return Map::is_linear ? 1.0f : p.terms.kept;
}

template <class Shape>
__device__ __forceinline__ void start_rows(SoftmaxRows<Shape>& rows, const AttendParams& p, const QuerySegment& query,
                                           std::int32_t row_begin, std::int64_t head_row) {
  clear(rows.o);
  DISTATTN_UNROLL
  for (int m = 0; m < Shape::m_count; ++m) rows.top[m][0] = rows.top[m][1] = no_score();
  DISTATTN_UNROLL
  for (int m = 0; m < Shape::m_count; ++m) rows.sum[m][0] = rows.sum[m][1] = 0;
  if (!query.carry) return;
  for_each_row<Shape::m_count>(row_begin, query.run.count, [&](int m, int half, std::int64_t row) {
    if (column_of() == 0) rows.top[m][half] = load_lse(query, head_row + row);
  });
  DISTATTN_UNROLL
  for (int m = 0; m < Shape::m_count; ++m) {
    DISTATTN_UNROLL
    for (int half = 0; half < 2; ++half) {
      Split& top = rows.top[m][half];
      rows.sum[m][half] = top.top == no_score().top ? 0.0f : 1.0f;  // once among the lanes that share the row
      top = {from_first_of_row(top.top), from_first_of_row(top.rest)};
    }
  }
  const ColumnPart columns = column_part<Shape>(p, p.value_dim);
  const float unit = 1.0f / output_factor<typename Shape::Map>(p);
  for_each_row<Shape::m_count>(row_begin, query.run.count, [&](int m, int half, std::int64_t row) {
    const float* const o = query.o + (head_row + row) * p.value_dim + columns.first + column_of();
    DISTATTN_UNROLL
    for (int n = 0; n < Shape::value_dim / 8; ++n) {
      if (8 * n >= columns.count) break;
      const Pair carried = prim::load_global(reinterpret_cast<const Pair*>(o + 8 * n));
      rows.o[m][n][2 * half] = carried.x * unit;
      rows.o[m][n][2 * half + 1] = carried.y * unit;
    }
  });
}

template <class Shape>
__device__ __forceinline__ void store_rows(SoftmaxRows<Shape>& rows, const AttendParams& p, const QuerySegment& query,
                                           std::int32_t row_begin, std::int64_t head_row) {
  DISTATTN_UNROLL
  for (int m = 0; m < Shape::m_count; ++m) {
    DISTATTN_UNROLL
    for (int half = 0; half < 2; ++half) {
      rows.sum[m][half] = over_row(rows.sum[m][half], [](float a, float b) { return a + b; });
    }
  }
  const ColumnPart columns = column_part<Shape>(p, p.value_dim);
  for_each_row<Shape::m_count>(row_begin, query.run.count, [&](int m, int half, std::int64_t row) {
    const float sum = rows.sum[m][half];
    const float scale = sum == 0 ? 0.0f : output_factor<typename Shape::Map>(p) / sum;
    float* const o = query.o + (head_row + row) * p.value_dim + columns.first + column_of();
    store_row(o, rows.o[m], half, columns.count, scale, false);
    if (column_of() != 0) return;
    if constexpr (in_parts<Shape>) {  // the next launch starts from the same carry
      if (columns.first + columns.count < p.value_dim) return;
    }
    store_lse(query, head_row + row, rows.top[m][half], sum);
  });
}

}  // namespace distattn::kernels::cuda
