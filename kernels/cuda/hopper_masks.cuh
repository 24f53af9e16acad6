#pragma once
/// Masks of tiles wider than 64 columns, made while there are no scores to hold.

#include "kernels/cuda/rows.cuh"

namespace distattn::kernels::cuda {

/// Which columns of a tile the rows of this lane see.
template <int n_count>
struct TileMasks {
  bool cut;  ///< something is hidden
  std::uint64_t visible[(n_count + 7) / 8][2];

  __device__ __forceinline__ TileMasks(const AttendParams& p, const TileCursor& at, const Run& own,
                                       std::int64_t row_begin, const Run& columns) {
    cut = at.cut;
    if (!cut) return;
    const Visit& visit = p.visits[at.visit];
    DISTATTN_UNROLL
    for (int part = 0; part < (n_count + 7) / 8; ++part) {
      const RowMasks<1> masks(p.bands, visit, at.column + 64 * part, own, row_begin, columns);
      visible[part][0] = masks.visible[0][0];
      visible[part][1] = masks.visible[0][1];
    }
  }
  /// Hides rows past the segment's end: there is nothing, but products of several rows would count it.
  __device__ __forceinline__ void hide_rows_past_end(std::int64_t row_begin, const Run& own) {
    DISTATTN_UNROLL
    for (int part = 0; part < (n_count + 7) / 8; ++part) {
      DISTATTN_UNROLL
      for (int half = 0; half < 2; ++half) {
        const bool exists = row_begin + row_of<1>(0, half) < own.count;
        const std::uint64_t before = cut ? visible[part][half] : ~std::uint64_t{0};
        visible[part][half] = exists ? before : 0;
      }
    }
    cut = true;
  }
  __device__ __forceinline__ bool sees(int n, int i) const {
    return (visible[n / 8][i / 2] >> (8 * (n % 8) + i % 2) & 1u) != 0;
  }
};

}  // namespace distattn::kernels::cuda
