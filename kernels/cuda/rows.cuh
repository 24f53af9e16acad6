#pragma once
/// Which rows and columns of a tile a lane holds, and which pairs of them the mask shows.

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

/// First of the two columns that this lane holds in every piece.
__device__ __forceinline__ int column_of() { return static_cast<int>(threadIdx.x) % 4 * 2; }

/// Calls visit(m, half, row) for every row of this lane inside the segment.
template <int m_count, class Visitor>
__device__ __forceinline__ void for_each_row(std::int64_t row_begin, std::int64_t count, Visitor visit) {
  DISTATTN_UNROLL
  for (int m = 0; m < m_count; ++m) {
    DISTATTN_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = row_begin + row_of<m_count>(m, half);
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

/// Which columns of a tile each row of this lane sees: bit 8·n + i for its value i of piece n.
template <int m_count>
struct RowMasks {
  std::uint64_t visible[m_count][2];

  /// Everything where the tile is whole.
  __device__ __forceinline__ RowMasks(const Band* bands, const Visit& visit, int column, const Run& own,
                                      std::int64_t row_begin, const Run& columns) {
    const int band_count = visit.last_band - visit.first_band;
    DISTATTN_UNROLL
    for (int m = 0; m < m_count; ++m) {
      DISTATTN_UNROLL
      for (int half = 0; half < 2; ++half) {
        visible[m][half] = ~std::uint64_t{0};
        if (band_count == 0) continue;
        const std::int64_t position = own.at(row_begin + row_of<m_count>(m, half));
        visible[m][half] =
            visible_columns(bands + visit.first_band, band_count, position, columns, column) >> column_of();
      }
    }
  }

  __device__ __forceinline__ bool sees(int m, int n, int i) const {
    return (visible[m][i / 2] >> (8 * n + i % 2) & 1u) != 0;
  }
};

}  // namespace distattn::kernels::cuda
