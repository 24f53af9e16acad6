#pragma once
/// The query rows of a backward pass that a lane holds: their statistics, and where their gradient goes.

#include "kernels/cuda/block_place.cuh"
#include "kernels/cuda/column_part.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/scores.cuh"

namespace distattn::kernels::cuda {

/// The statistics of the two rows that a lane holds.
struct RowStatistics {
  Split lse[2] = {{0, 0}, {0, 0}};  ///< in units of log2
  float delta[2] = {0, 0};

  __device__ __forceinline__ RowStatistics(const QuerySegment& query, std::int32_t row_begin, std::int64_t head_row) {
    for_each_row<1>(row_begin, query.run.count, [&](int, int half, std::int64_t row) {
      lse[half] = load_natural(query, head_row + row).least_in_log2();
      delta[half] = prim::load_global(query.delta + head_row + row);
    });
  }
};

template <class Map, int pieces>
__device__ __forceinline__ void store_query_gradient(const float (&dq)[1][pieces][4], const AttendParams& p,
                                                     const QuerySegment& query, std::int32_t row_begin,
                                                     std::int64_t head_row, const ColumnPart& columns) {
  for_each_row<1>(row_begin, query.run.count, [&](int, int half, std::int64_t row) {
    float* const into = query.dq + (head_row + row) * p.head_dim + columns.first + column_of();
    store_row(into, dq[0], half, columns.count, Map(p).factor(), query.carry);
  });
}

}  // namespace distattn::kernels::cuda
