#pragma once
/// Biases and dropout in tiles of any width, as their rows and columns lie in a lane's registers.

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/general_scores.cuh"
#include "kernels/cuda/rows.cuh"

namespace distattn::kernels::cuda {

/// Which tile of which query head. Rows are those of the thread block.
struct TilePlace {
  int batch, head;
  int column;  ///< the tile's first
};

/// What Map::Terms are in a tile whose rows are queries or keys. Made, as masks are, while there are no scores to hold.
template <class Map, Owner rows, int n_count, int m_count = 1>
struct TileTerms {
  using Bits = std::conditional_t<(n_count > 8), std::uint64_t, std::uint32_t>;
  static_assert(n_count <= 16);

  __device__ __forceinline__ TileTerms(const AttendParams& p, const TilePlace& at, const Run& own,
                                       std::int32_t row_begin, const Run& columns)
      : head_(p, at.batch, at.head) {
    const std::int64_t first_column = columns.at(at.column + column_of());
    step_ = static_cast<float>(rows == Owner::queries ? columns.stride : -columns.stride);
    DISTATTN_UNROLL
    for (int m = 0; m < m_count; ++m) {
      DISTATTN_UNROLL
      for (int half = 0; half < 2; ++half) {
        const std::int64_t ahead = first_column - own.at(row_begin + row_of<m_count>(m, half));
        distance_[m][half] = static_cast<float>(rows == Owner::queries ? ahead : -ahead);
      }
      kept_[m] = head_.drops() ? 0 : ~Bits{0};
    }
    if (head_.drops()) draw(own, row_begin, static_cast<std::uint32_t>(first_column), columns);
  }

  __device__ __forceinline__ float biased(float level, int m, int n, int i) const {
    return head_.biased(level, distance_[m][i / 2] + step_ * static_cast<float>(8 * n + i % 2));
  }
  /// A weight or its gradient: times the factor of what is kept, or 0.
  __device__ __forceinline__ float kept(float value, int m, int n, int i) const {
    return keeps(m, n, i) ? value * head_.factor() : 0.0f;
  }
  /// Takes dropped weights out of a tile. What the others are multiplied by waits for outputs (output_factor): a row's
  /// only weight, 1, is one of which no element type rounds anything.
  __device__ __forceinline__ void drop(float (&s)[m_count][n_count][4]) const {
    if (!head_.drops()) return;
    DISTATTN_UNROLL
    for (int m = 0; m < m_count; ++m) {
      DISTATTN_UNROLL
      for (int n = 0; n < n_count; ++n) {
        DISTATTN_UNROLL
        for (int i = 0; i < 4; ++i) s[m][n][i] = keeps(m, n, i) ? s[m][n][i] : 0.0f;
      }
    }
  }
  /// Levels get their bias.
  __device__ __forceinline__ void add_bias(float (&s)[m_count][n_count][4]) const {
    DISTATTN_UNROLL
    for (int m = 0; m < m_count; ++m) {
      DISTATTN_UNROLL
      for (int n = 0; n < n_count; ++n) {
        DISTATTN_UNROLL
        for (int i = 0; i < 4; ++i) s[m][n][i] = biased(s[m][n][i], m, n, i);
      }
    }
  }

 private:
  __device__ __forceinline__ bool keeps(int m, int n, int i) const { return (kept_[m] >> (4 * n + i) & 1u) != 0; }
  /// Words are made for what lies beside each other once where a row's two columns are keys that share them.
  __device__ __forceinline__ void draw(const Run& own, std::int32_t row_begin, std::uint32_t column,
                                       const Run& columns) {
    const auto stride = static_cast<std::uint32_t>(columns.stride);
    DISTATTN_NO_UNROLL
    for (int n = 0; n < n_count; ++n, column += 8 * stride) {
      DISTATTN_UNROLL
      for (int m = 0; m < m_count; ++m) {
        DISTATTN_UNROLL
        for (int half = 0; half < 2; ++half) {
          const auto row = static_cast<std::uint32_t>(own.at(row_begin + row_of<m_count>(m, half)));
          kept_[m] |= static_cast<Bits>(kept_pair(row, column, column + stride)) << (4 * n + 2 * half);
        }
      }
    }
  }
  __device__ __forceinline__ unsigned kept_pair(std::uint32_t row, std::uint32_t first, std::uint32_t second) const {
    if constexpr (rows == Owner::queries) {
      auto words = head_.words(row, first);
      const bool keeps_first = head_.keeps(words, first);
      if (second >> 2 != first >> 2) words = head_.words(row, second);
      return static_cast<unsigned>(keeps_first) | static_cast<unsigned>(head_.keeps(words, second)) << 1;
    } else {
      return static_cast<unsigned>(head_.keeps(head_.words(first, row), row)) |
             static_cast<unsigned>(head_.keeps(head_.words(second, row), row)) << 1;
    }
  }

  typename Map::Terms head_;
  float distance_[m_count][2], step_;  // key − query, of the first column and from one to the next
  Bits kept_[m_count];                 // bit 4·n + i for value i of piece n
};

template <Owner rows, int n_count, int m_count>
struct TileTerms<LinearScores, rows, n_count, m_count> {
  __device__ __forceinline__ TileTerms(const AttendParams&, const TilePlace&, const Run&, std::int32_t, const Run&) {}
  __device__ __forceinline__ float biased(float level, int, int, int) const { return level; }
  __device__ __forceinline__ float kept(float value, int, int, int) const { return value; }
  __device__ __forceinline__ void drop(float (&)[m_count][n_count][4]) const {}
  __device__ __forceinline__ void add_bias(float (&)[m_count][n_count][4]) const {}
};

}  // namespace distattn::kernels::cuda
