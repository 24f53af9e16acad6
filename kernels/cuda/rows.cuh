#pragma once
/// Which rows and columns of a tile a lane holds.

#include <cstdint>

#include "kernels/cuda/attend_params.hpp"
#include "kernels/cuda/fragments.cuh"

namespace distattn::kernels::cuda {

/// Row of the block that the values 2·half and 2·half+1 of piece m belong to.
template <int m_count>
__device__ __forceinline__ int row_of(int m, int half) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  return (warp * m_count + m) * 16 + half * 8 + lane / 4;
}

/// First row of this thread's warp. From a lane of the warp, so that the compiler knows it to be the same in all.
template <int m_count>
__device__ __forceinline__ int first_row_of_warp() {
  return __shfl_sync(whole_warp, static_cast<int>(threadIdx.x) / 32, 0) * m_count * 16;
}

/// First of the two columns that this lane holds in every piece.
__device__ __forceinline__ int column_of() { return static_cast<int>(threadIdx.x) % 4 * 2; }

/// Calls visit(m, half, row) for every row of this lane inside the segment.
template <int m_count, class Visitor>
__device__ __forceinline__ void for_each_row(std::int32_t row_begin, std::int64_t count, Visitor visit) {
  DISTATTN_UNROLL
  for (int m = 0; m < m_count; ++m) {
    DISTATTN_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::int32_t row = row_begin + row_of<m_count>(m, half);
      if (row < count) visit(m, half, row);
    }
  }
}

/// into (+)= scale · one row of a product, of which `dim` columns exist. `into` is this lane's first column.
template <int pieces>
__device__ __forceinline__ void store_row(float* into, const float (&d)[pieces][4], int half, int dim, float scale,
                                          bool carry) {
  DISTATTN_UNROLL
  for (int n = 0; n < pieces; ++n) {
    if (8 * n >= dim) break;
    auto* const pair = reinterpret_cast<Pair*>(into + 8 * n);
    const Pair before = carry ? prim::load_global<Pair>(pair) : Pair{0, 0};
    prim::store_global(pair, Pair{before.x + d[n][2 * half] * scale, before.y + d[n][2 * half + 1] * scale});
  }
}

}  // namespace distattn::kernels::cuda
