#pragma once
/// Tiles of 16-bit elements in shared memory, and products of them held in registers.
///
/// A warp computes 16·m rows by 8·n columns as float[m][n][4]: in the 16×8 piece (m, n), lane l holds rows l/4 (values
/// 0, 1) and l/4 + 8 (values 2, 3), columns l%4·2 and the next (PTX ISA, fragments of mma.m16n8k16).

#include <cstdint>

#include "kernels/cuda/primitives.cuh"

namespace distattn::kernels::cuda {

inline constexpr int chunk = 8;  // elements that one 16-byte access moves
inline constexpr unsigned whole_warp = 0xffffffffu;

/// Rows of `width` elements. The 16-byte chunks of a row are permuted in groups so that the eight rows of a matrix that
/// ldmatrix reads lie in different banks. A tile begins on a boundary of 128 bytes.
template <int width>
struct SharedTile {
  static_assert(width % 32 == 0);
  static constexpr int row_bytes = width * 2, group = width % 64 == 0 ? 8 : 4, group_bytes = group * 16;

  static constexpr int bytes(int rows) { return rows * row_bytes; }
  /// Of a chunk of the row's first group.
  __device__ static __forceinline__ std::uint32_t address(std::uint32_t tile, int row, int column_chunk) {
    const int permuted = column_chunk ^ (group == 8 ? row & 7 : row >> 1 & 3);
    return tile + static_cast<std::uint32_t>(row * row_bytes + permuted * 16);
  }
  /// A multiple of 8 rows and of 2 chunks further: where these are constants one instruction or none, so that a lane
  /// has one address for all steps of a product.
  __device__ static __forceinline__ std::uint32_t further(std::uint32_t address, int rows, int chunks) {
    return (address ^ static_cast<std::uint32_t>(chunks % group * 16)) +
           static_cast<std::uint32_t>(rows * row_bytes + chunks / group * group_bytes);
  }
  /// Where this lane reads 16 rows × 16 columns for ldmatrix, as it orders a left operand or, transposed, two right
  /// ones whose depth are the rows.
  __device__ static __forceinline__ std::uint32_t rows_of_lane(std::uint32_t tile, int row) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return address(tile, row + lane % 16, lane / 16);
  }
  /// The same of two right operands whose depth are the columns.
  __device__ static __forceinline__ std::uint32_t columns_of_lane(std::uint32_t tile) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return address(tile, lane / 16 * 8 + lane % 8, lane / 8 % 2);
  }
};

/// Starts to copy rows first … first+rows-1 of [count][stride] elements, of which the first `dim` are there; zeros
/// outside. All threads of the block: each has one column of chunks in every group.
template <int rows, int width, int threads, class Element>
__device__ __forceinline__ void copy_tile(std::uint32_t tile, const Element* from, std::int64_t first,
                                          std::int64_t count, int dim, int stride) {
  using Tile = SharedTile<width>;
  constexpr int rows_at_once = threads / Tile::group;
  static_assert(rows % rows_at_once == 0 || rows < rows_at_once);
  const int thread = static_cast<int>(threadIdx.x), row = thread / Tile::group, column = thread % Tile::group * chunk;
  if (rows < rows_at_once && row >= rows) return;
  const std::uint32_t into = Tile::address(tile, row, column / chunk);
  const int rows_left = static_cast<int>(count - first < rows ? count - first : rows) - row;
  from += first * stride + (row * stride + column);
  DISTATTN_UNROLL
  for (int i = 0; i < rows; i += rows_at_once) {
    DISTATTN_UNROLL
    for (int x = 0; x < width; x += Tile::group * chunk) {
      prim::copy_async_16(Tile::further(into, i, x / chunk), from + x, i < rows_left && column + x < dim);
    }
    from += rows_at_once * stride;
  }
}
/// The same of rows without gaps.
template <int rows, int width, int threads, class Element>
__device__ __forceinline__ void copy_tile(std::uint32_t tile, const Element* from, std::int64_t first,
                                          std::int64_t count, int dim) {
  copy_tile<rows, width, threads>(tile, from, first, count, dim, dim);
}

template <int m_count, int n_count>
__device__ __forceinline__ void clear(float (&d)[m_count][n_count][4]) {
  DISTATTN_UNROLL
  for (int m = 0; m < m_count; ++m) {
    DISTATTN_UNROLL
    for (int n = 0; n < n_count; ++n) {
      DISTATTN_UNROLL
      for (int i = 0; i < 4; ++i) d[m][n][i] = 0;
    }
  }
}

/// d += L·Rᵀ: rows `row` … of the tile `left` with all rows of the tile `right`.
template <class Element, int width, int m_count, int n_count>
__device__ __forceinline__ void add_product_of_rows(float (&d)[m_count][n_count][4], std::uint32_t left, int row,
                                                    std::uint32_t right) {
  using Tile = SharedTile<width>;
  std::uint32_t left_lane = Tile::rows_of_lane(left, row), right_lane = Tile::columns_of_lane(right);
  DISTATTN_NO_UNROLL  // said of all groups at once, their addresses are kept beside each other, and registers spill
      for (int group = 0; group < width; group += Tile::group * chunk) {
    DISTATTN_UNROLL
    for (int k = 0; k < Tile::group * chunk; k += 16) {
      std::uint32_t a[m_count][4];
      DISTATTN_UNROLL
      for (int m = 0; m < m_count; ++m) prim::load_matrices(a[m], Tile::further(left_lane, 16 * m, k / chunk));
      DISTATTN_UNROLL
      for (int n = 0; n < n_count; n += 2) {
        std::uint32_t b[4];
        prim::load_matrices(b, Tile::further(right_lane, 8 * n, k / chunk));
        DISTATTN_UNROLL
        for (int m = 0; m < m_count; ++m) {
          prim::mma<Element>(d[m][n], a[m], b[0], b[1]);
          prim::mma<Element>(d[m][n + 1], a[m], b[2], b[3]);
        }
      }
    }
    left_lane += Tile::group_bytes;
    right_lane += Tile::group_bytes;
  }
}

/// d += P·R, P from a product's registers rounded to Element, R a tile with a row for each column of P.
template <class Element, int width, int m_count, int k_count, int n_count>
__device__ __forceinline__ void add_product(float (&d)[m_count][n_count][4], const float (&p)[m_count][k_count][4],
                                            std::uint32_t right) {
  using Tile = SharedTile<width>;
  const std::uint32_t lane = Tile::rows_of_lane(right, 0);
  DISTATTN_UNROLL
  for (int k = 0; k < k_count; k += 2) {
    std::uint32_t a[m_count][4];
    DISTATTN_UNROLL
    for (int m = 0; m < m_count; ++m) {
      a[m][0] = prim::pack<Element>(p[m][k][0], p[m][k][1]);
      a[m][1] = prim::pack<Element>(p[m][k][2], p[m][k][3]);
      a[m][2] = prim::pack<Element>(p[m][k + 1][0], p[m][k + 1][1]);
      a[m][3] = prim::pack<Element>(p[m][k + 1][2], p[m][k + 1][3]);
    }
    DISTATTN_UNROLL
    for (int n = 0; n < n_count; n += 2) {
      std::uint32_t b[4];
      prim::load_matrices_transposed(b, Tile::further(lane, 8 * k, n));
      DISTATTN_UNROLL
      for (int m = 0; m < m_count; ++m) {
        prim::mma<Element>(d[m][n], a[m], b[0], b[1]);
        prim::mma<Element>(d[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// Neighbouring values, moved at once.
struct alignas(8) Pair {
  float x, y;
};
struct alignas(16) Quad {
  float x, y, z, w;
};

/// What the first of the four lanes of a row holds.
__device__ __forceinline__ float from_first_of_row(float value) {
  return __shfl_sync(whole_warp, value, static_cast<int>(threadIdx.x) % 32 / 4 * 4);
}

/// Combines what the four lanes of a row hold.
template <class Combine>
__device__ __forceinline__ float over_row(float value, Combine combine) {
  value = combine(value, __shfl_xor_sync(whole_warp, value, 1));
  return combine(value, __shfl_xor_sync(whole_warp, value, 2));
}

}  // namespace distattn::kernels::cuda
