#pragma once
/// The rows of a forward pass that a lane holds: started from a carry, fed with tiles of scores, written.

#include <cfloat>

#include "kernels/cuda/block_place.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/tile_masks.cuh"

namespace distattn::kernels::cuda {

/// What a score of 1 is in units of log2. Times -inf it is -inf.
__device__ __forceinline__ float unit_of_scores(float scale) { return fmaxf(fabsf(scale) * log2_e, FLT_MIN); }

/// Turns products into scores: -inf where nothing is visible. A negative scale is moved from the scale to them.
template <int m_count, int n_count>
__device__ __forceinline__ void mask_scores(float (&s)[m_count][n_count][4], float scale,
                                            const TileMasks<n_count, m_count>& masks) {
  if (scale < 0) {
    DISTATTN_UNROLL
    for (int m = 0; m < m_count; ++m) {
      DISTATTN_UNROLL
      for (int n = 0; n < n_count; ++n) {
        DISTATTN_UNROLL
        for (int i = 0; i < 4; ++i) s[m][n][i] = -s[m][n][i];
      }
    }
  }
  masks.hide(s, -INFINITY);
}

/// The online softmax of the rows that a lane holds: (o, log2-sum-exp) not yet divided by the sum.
template <class Shape>
struct SoftmaxRows {
  static constexpr int m_count = Shape::m_count, o_count = Shape::value_dim / 8;
  float top[m_count][2];  ///< largest score so far, in units of log2
  float sum[m_count][2];  ///< of 2^(score - top), over the columns of this lane
  float o[m_count][o_count][4];

  /// Turns scores into weights 2^(score - top): a score is its value in s times `unit` > 0. Sums are rescaled to the
  /// new top; outputs are still to be, by `rescale`.
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
        largest = fmaxf(top[m][half], over_row(largest, [](float a, float b) { return fmaxf(a, b); }) * unit);
        // A row that has seen nothing yet: every 2^(-inf) below is 0 and nothing is NaN.
        const float base = largest == -INFINITY ? 0.0f : largest;
        rescale[m][half] = prim::ex2(top[m][half] - base);
        top[m][half] = largest;
        sum[m][half] *= rescale[m][half];
        DISTATTN_UNROLL
        for (int n = 0; n < Shape::n_count; ++n) {
          DISTATTN_UNROLL
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            s[m][n][i] = prim::ex2(fmaf(s[m][n][i], unit, -base));
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

template <class Shape>
__device__ __forceinline__ void start_rows(SoftmaxRows<Shape>& rows, const AttendParams& p, const QuerySegment& query,
                                           std::int32_t row_begin, std::int64_t head_row) {
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
                                           std::int32_t row_begin, std::int64_t head_row) {
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
    store_row(o, rows.o[m], half, p.value_dim, scale, false);
    if (column_of() != 0) return;
    prim::store_global(query.lse + head_row + row, empty ? -INFINITY : (rows.top[m][half] + prim::lg2(sum)) * ln_2);
  });
}

}  // namespace distattn::kernels::cuda
