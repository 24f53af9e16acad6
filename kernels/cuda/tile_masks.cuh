#pragma once
/// Masks of tiles of any width, made while there are no scores to hold.

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/rows.cuh"

namespace distattn::kernels::cuda {

/// Which columns of a tile the rows of this lane see. It holds two of every eight columns: bits for these alone, bit
/// 2·n + i for its value i of piece n of a row, leave registers for scores.
template <int n_count, int m_count = 1>
struct TileMasks {
  using Bits = std::conditional_t<(n_count > 16), std::uint64_t, std::uint32_t>;
  bool cut;  ///< something is hidden
  Bits visible[m_count][2] = {};

  __device__ __forceinline__ TileMasks(const AttendParams& p, const TileCursor& at, const Run& own,
                                       std::int32_t row_begin, const Run& columns) {
    cut = at.cut;
    if (!cut) return;
    const Visit& visit = p.visits[at.visit];
    const Run run = columns;  // loaded once, and beside the bands
    DISTATTN_NO_UNROLL
    for (int b = visit.first_band; b < visit.last_band; ++b) {
      const Band band = p.bands[b];
      DISTATTN_UNROLL
      for (int m = 0; m < m_count; ++m) {
        DISTATTN_UNROLL
        for (int half = 0; half < 2; ++half) {
          const IndexRange seen = band_keys(band, own.at(row_begin + row_of<m_count>(m, half)), run);
          visible[m][half] |= values_before(seen.end - at.column) & ~values_before(seen.begin - at.column);
        }
      }
    }
  }
  /// Hides rows past the segment's end: there is nothing, but products of several rows would count it.
  __device__ __forceinline__ void hide_rows_past_end(std::int32_t row_begin, const Run& own) {
    DISTATTN_UNROLL
    for (int m = 0; m < m_count; ++m) {
      DISTATTN_UNROLL
      for (int half = 0; half < 2; ++half) {
        const bool exists = row_begin + row_of<m_count>(m, half) < own.count;
        const Bits before = cut ? visible[m][half] : ~Bits{0};
        visible[m][half] = exists ? before : 0;
      }
    }
    cut = true;
  }
  __device__ __forceinline__ bool sees(int n, int i, int m = 0) const {
    return (visible[m][i / 2] >> (2 * n + i % 2) & 1u) != 0;
  }
  /// What is hidden becomes `value`: a branch, and nothing else in tiles that nothing cuts.
  __device__ __forceinline__ void hide(float (&s)[m_count][n_count][4], float value) const {
    if (!cut) return;
    DISTATTN_UNROLL
    for (int m = 0; m < m_count; ++m) {
      DISTATTN_UNROLL
      for (int n = 0; n < n_count; ++n) {
        DISTATTN_UNROLL
        for (int i = 0; i < 4; ++i) s[m][n][i] = sees(n, i, m) ? s[m][n][i] : value;
      }
    }
  }

 private:
  /// The values of this lane in the tile's first columns.
  __device__ __forceinline__ static Bits values_before(std::int64_t column) {
    const int columns = static_cast<int>(column < 0 ? 0 : column > 8 * n_count ? 8 * n_count : column);
    const int of_piece = columns % 8 - column_of();
    const int count = columns / 8 * 2 + (of_piece < 0 ? 0 : of_piece > 2 ? 2 : of_piece);
    return count < 2 * n_count ? (Bits{1} << count) - 1 : ~Bits{0};
  }
};

}  // namespace distattn::kernels::cuda
