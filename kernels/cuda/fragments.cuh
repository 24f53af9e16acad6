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

/// Rows of `width` elements. The 16-byte chunks of a row are permuted so that the eight rows of a matrix that ldmatrix
/// reads lie in different banks.
template <int width>
struct SharedTile {
  static_assert(width % 32 == 0);
  static constexpr int chunks = width / chunk;

  static constexpr int bytes(int rows) { return rows * width * 2; }
  __device__ static __forceinline__ std::uint32_t address(std::uint32_t tile, int row, int column_chunk) {
    const int permuted = column_chunk ^ (width % 64 == 0 ? row & 7 : row >> 1 & 3);
    return tile + static_cast<std::uint32_t>((row * chunks + permuted) * 16);
  }
};

/// Starts to copy rows first … first+rows-1 of [count][dim] elements; zeros outside. All threads of the block.
template <int rows, int width, int threads, class Element>
__device__ __forceinline__ void copy_tile(std::uint32_t tile, const Element* from, std::int64_t first,
                                          std::int64_t count, int dim) {
  constexpr int chunks = SharedTile<width>::chunks;
  DISTATTN_NO_UNROLL
  for (int i = 0; i < (rows * chunks + threads - 1) / threads; ++i) {
    const int index = static_cast<int>(threadIdx.x) + i * threads;
    if (rows * chunks % threads != 0 && index >= rows * chunks) break;
    const int row = index / chunks, column = index % chunks * chunk;
    const bool valid = first + row < count && column < dim;
    prim::copy_async_16(SharedTile<width>::address(tile, row, column / chunk),
                        from + (valid ? (first + row) * dim + column : 0), valid);
  }
}

/// 16 rows × 16 columns of a row-major tile as the left operand.
template <int width>
__device__ __forceinline__ void load_left(std::uint32_t (&a)[4], std::uint32_t tile, int row, int column) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  prim::load_matrices(a, SharedTile<width>::address(tile, row + lane % 16, column / chunk + lane / 16));
}

/// The same of a tile that holds the left operand transposed: its rows are the operand's columns.
template <int width>
__device__ __forceinline__ void load_left_transposed(std::uint32_t (&a)[4], std::uint32_t tile, int row, int column) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  prim::load_matrices_transposed(
      a, SharedTile<width>::address(tile, column + lane / 16 * 8 + lane % 8, row / chunk + lane / 8 % 2));
}

/// Two right operands, columns n … n+7 and n+8 … n+15 at depth k … k+15, of a tile whose rows are their columns.
template <int width>
__device__ __forceinline__ void load_right(std::uint32_t (&b)[4], std::uint32_t tile, int k, int n) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  prim::load_matrices(b, SharedTile<width>::address(tile, n + lane / 16 * 8 + lane % 8, k / chunk + lane / 8 % 2));
}

/// The same of a tile whose rows are the depth.
template <int width>
__device__ __forceinline__ void load_right_transposed(std::uint32_t (&b)[4], std::uint32_t tile, int k, int n) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  prim::load_matrices_transposed(b, SharedTile<width>::address(tile, k + lane % 16, n / chunk + lane / 16));
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
  DISTATTN_UNROLL_BY_4  // all of it would keep the addresses of every step in registers, and spill
      for (int k = 0; k < width; k += 16) {
    std::uint32_t a[m_count][4];
    DISTATTN_UNROLL
    for (int m = 0; m < m_count; ++m) load_left<width>(a[m], left, row + 16 * m, k);
    DISTATTN_UNROLL
    for (int n = 0; n < n_count; n += 2) {
      std::uint32_t b[4];
      load_right<width>(b, right, k, 8 * n);
      DISTATTN_UNROLL
      for (int m = 0; m < m_count; ++m) {
        prim::mma<Element>(d[m][n], a[m], b[0], b[1]);
        prim::mma<Element>(d[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// d += P·R, P from a product's registers rounded to Element, R a tile with a row for each column of P.
template <class Element, int width, int m_count, int k_count, int n_count>
__device__ __forceinline__ void add_product(float (&d)[m_count][n_count][4], const float (&p)[m_count][k_count][4],
                                            std::uint32_t right) {
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
      load_right_transposed<width>(b, right, 8 * k, 8 * n);
      DISTATTN_UNROLL
      for (int m = 0; m < m_count; ++m) {
        prim::mma<Element>(d[m][n], a[m], b[0], b[1]);
        prim::mma<Element>(d[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// Two neighbouring values of a row of results.
struct alignas(8) Pair {
  float x, y;
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
