#pragma once
/// Masks of tiles of any width, which need no scores.

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

  __device__ __forceinline__ TileMasks(const AttendParams& p, const TileCursor& at, std::int32_t row_begin) {
    cut = at.is_cut();
    DISTATTN_NO_UNROLL
    for (int c = at.first_cut; c < at.last_cut; ++c) show(p.cuts[c], at.column, row_begin);
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
      for (int half = 0; half < 2; ++half) {
        DISTATTN_UNROLL
        for (int n = 0; n < n_count; ++n) {
          DISTATTN_UNROLL
          for (int i = 2 * half; i < 2 * half + 2; ++i) s[m][n][i] = sees(n, i, m) ? s[m][n][i] : value;
        }
      }
    }
  }

 private:
  __device__ __forceinline__ void show(const Cut& shown, std::int32_t column, std::int32_t row_begin) {
    DISTATTN_UNROLL
    for (int m = 0; m < m_count; ++m) {
      DISTATTN_UNROLL
      for (int half = 0; half < 2; ++half) {
        const Cut::Range seen = shown.seen_from(row_begin + row_of<m_count>(m, half), column + column_of());
        visible[m][half] |= values_from(seen.begin) & ~values_from(seen.end);
      }
    }
  }
  /// The values of this lane in columns from `column`, which is counted from the lane's first.
  __device__ __forceinline__ static Bits values_from(std::int32_t column) {
    const int before = ((column + 7) >> 3) + ((column + 6) >> 3);  // first and second columns of pieces
    const int count = before > 0 ? before : 0;
    return count < 2 * n_count ? ~Bits{0} << count : 0;
  }
};

}  // namespace distattn::kernels::cuda
