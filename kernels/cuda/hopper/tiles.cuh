#pragma once
/// Tiles of 16-bit elements as the copy engine leaves them in shared memory, and products of them by a warpgroup.

#include <tuple>

#include "kernels/cuda/attend_params.hpp"
#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/hopper/primitives.cuh"

namespace distattn::kernels::cuda {

/// Most shared memory that a block may have.
inline constexpr int most_shared_bytes = 227 * 1024;

/// Number of this thread's warpgroup. From a lane of the warp, so that the compiler knows it to be the same in all.
__device__ __forceinline__ int warpgroup() { return __shfl_sync(whole_warp, static_cast<int>(threadIdx.x) / 128, 0); }

/// wgmma's view of a tile with 128-byte swizzling (PTX ISA, matrix descriptor). Offsets in bytes.
__device__ constexpr std::uint64_t matrix_descriptor(std::uint32_t address, int leading, int stride) {
  constexpr std::uint64_t swizzle_128_bytes = 1;
  return std::uint64_t{(address & 0x3ffffu) >> 4} | static_cast<std::uint64_t>(leading >> 4) << 16 |
         static_cast<std::uint64_t>(stride >> 4) << 32 | swizzle_128_bytes << 62;
}

/// Where a 16-byte chunk of a row of 128 bytes lies.
__device__ __forceinline__ std::uint32_t swizzled_chunk(std::uint32_t rows, int row, int chunk_of_row) {
  return rows + static_cast<std::uint32_t>(row * box_row_bytes + (chunk_of_row ^ row % 8) * 16);
}

/// From where a chunk lies to where that one lies whose place in the row differs from its in the bits of `bits`. Needs
/// one register for a row, where the compiler would keep one for each chunk.
__device__ __forceinline__ constexpr std::uint32_t chunks_on(std::uint32_t address, int bits) {
  return address ^ static_cast<std::uint32_t>(bits * 16);
}

/// Columns in panels of 64: a panel has its rows of 128 bytes one after the other.
template <int rows_, int width_>
struct PanelTile {
  static constexpr int rows = rows_, width = width_;
  static constexpr int panels = (width + 63) / 64;
  static constexpr int panel_bytes = rows * box_row_bytes;
  static constexpr int bytes = panels * panel_bytes;
  static constexpr int pieces = 8 * panels;                ///< of eight columns, in a product with all of its columns
  static constexpr int pattern_bytes = 8 * box_row_bytes;  ///< eight rows, after which the permutation repeats
  static_assert(rows % 8 == 0);

  /// Starts to copy rows `row` … of a plane; zeros outside. One thread.
  __device__ static __forceinline__ void load(std::uint32_t tile, const TensorMap* map, std::uint32_t barrier, int row,
                                              int plane) {
    DISTATTN_UNROLL
    for (int panel = 0; panel < panels; ++panel) {
      prim::load_box(tile + static_cast<std::uint32_t>(panel * panel_bytes), map, barrier, 64 * panel, row, plane);
    }
  }

  __device__ static __forceinline__ std::uint32_t address(std::uint32_t tile, int row, int column) {
    return tile + static_cast<std::uint32_t>(column / 64 * panel_bytes + row * box_row_bytes + column % 64 * 2);
  }
  /// Where the chunk of eight elements from `column` lies.
  __device__ static __forceinline__ std::uint32_t chunk_address(std::uint32_t tile, int row, int column) {
    return swizzled_chunk(tile + static_cast<std::uint32_t>(column / 64 * panel_bytes), row, column % 64 / chunk);
  }
  /// An operand whose depth runs along the columns, from `column`, and whose other index along the rows, from `row`.
  __device__ static __forceinline__ std::uint64_t by_rows(std::uint32_t tile, int row, int column) {
    return matrix_descriptor(address(tile, row, column), 16, pattern_bytes);
  }
  /// An operand whose depth runs along the rows; `column` begins a panel.
  __device__ static __forceinline__ std::uint64_t by_columns(std::uint32_t tile, int row, int column) {
    return matrix_descriptor(address(tile, row, column), panel_bytes, pattern_bytes);
  }
  /// What to add to a descriptor to move it by rows and columns: registers do not hold a descriptor for each step.
  __device__ static constexpr std::uint64_t step(int rows_on, int columns_on) {
    return static_cast<std::uint64_t>(columns_on / 64 * panel_bytes + rows_on * box_row_bytes + columns_on % 64 * 2) >>
           4;
  }
};

/// Rows of the boxes that a kernel moves; 0: not that tensor.
struct BoxRows {
  int q = 0, d_o = 0, dq = 0;
  int keys = 0;  ///< of K and V
};

/// On the host, what DescribeTensors says.
template <class Element>
int describe_tensors(const BoxRows& boxes, const TileShape& shape, std::span<const QuerySegment> queries,
                     std::span<QueryMaps> query_maps, std::span<const KeySegment> keys, std::span<KeyMaps> key_maps) {
  const std::int64_t query_planes = shape.batch * shape.heads.q_count, key_planes = shape.batch * shape.heads.kv_count;
  int status = 0;
  const auto describe = [&]<class T>(TensorMap& map, const T* base, const TensorShape& tensor) {
    if (status == 0 && tensor.rows > 0 && tensor.box_rows > 0) status = prim::describe_tensor(map, base, tensor);
  };
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const auto& [query, maps] = std::tie(queries[i], query_maps[i]);
    const std::int64_t rows = query.run.count;
    describe(maps.q, static_cast<const Element*>(query.q), {shape.head_dim, rows, query_planes, boxes.q});
    describe(maps.d_o, static_cast<const Element*>(query.d_o), {shape.value_dim, rows, query_planes, boxes.d_o});
    describe(maps.dq, static_cast<const float*>(query.dq), {shape.head_dim, rows, query_planes, boxes.dq});
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto& [key, maps] = std::tie(keys[i], key_maps[i]);
    const std::int64_t rows = key.run.count;
    describe(maps.k, static_cast<const Element*>(key.k), {shape.head_dim, rows, key_planes, boxes.keys});
    describe(maps.v, static_cast<const Element*>(key.v), {shape.value_dim, rows, key_planes, boxes.keys});
  }
  return status;
}

/// d = L·Rᵀ: 64 rows of `left` from `row` with all rows of `right`, over `width` columns.
template <class Element, class Left, class Right, int width, int pieces>
__device__ __forceinline__ void start_product_of_rows(float (&d)[pieces][4], std::uint32_t left, int row,
                                                      std::uint32_t right) {
  static_assert(pieces * 8 == Right::rows && width <= Left::width && width <= Right::width);
  const std::uint64_t l = Left::by_rows(left, row, 0), r = Right::by_rows(right, 0, 0);
  DISTATTN_UNROLL
  for (int k = 0; k < width; k += 16) {
    prim::multiply<Element>(d, l + Left::step(0, k), r + Right::step(0, k), k > 0);
  }
}

/// d += P·R: P in registers, R with a row for each column of P, from `row`. Whole panels of R: wgmma's layouts know no
/// part of one.
template <class Element, class Right, int steps, int pieces>
__device__ __forceinline__ void start_product(float (&d)[pieces][4], const std::uint32_t (&p)[steps][4],
                                              std::uint32_t right, int row = 0) {
  static_assert(steps * 16 <= Right::rows && pieces == Right::pieces);
  const std::uint64_t r = Right::by_columns(right, 0, 0);
  DISTATTN_UNROLL
  for (int k = 0; k < steps; ++k) {
    prim::multiply<Element, prim::Major::other>(d, p[k], r + Right::step(row + 16 * k, 0), true);
  }
}

/// A product's registers from piece `first`, rounded to Element, as the left operand of the next.
template <class Element, int steps, int pieces>
__device__ __forceinline__ void round_to_operand(std::uint32_t (&p)[steps][4], const float (&d)[pieces][4],
                                                 int first = 0) {
  static_assert(steps * 2 <= pieces);
  DISTATTN_UNROLL
  for (int k = 0; k < steps; ++k) {
    DISTATTN_UNROLL
    for (int i = 0; i < 4; ++i) {
      const auto& piece = d[first + 2 * k + i / 2];
      p[k][i] = prim::pack<Element>(piece[i % 2 * 2], piece[i % 2 * 2 + 1]);
    }
  }
}

/// One of the buffers that tiles pass through: barriers `filled` and `emptied` of 8 bytes for each.
struct Stage {
  std::uint32_t index;
  unsigned parity;  ///< of the phases in which this tile passes

  __device__ __forceinline__ explicit Stage(int tile, int count = 2)
      : index(static_cast<std::uint32_t>(tile % count)), parity(static_cast<unsigned>(tile / count % 2)) {}
  /// The buffer's barrier among those of all.
  __device__ __forceinline__ std::uint32_t of(std::uint32_t barriers) const { return barriers + index * 8; }
  __device__ __forceinline__ void await_filled(std::uint32_t filled) const { prim::wait_for_phase(of(filled), parity); }
  /// Passes at once for the first tile of a buffer.
  __device__ __forceinline__ void await_emptied(std::uint32_t emptied) const {
    prim::wait_for_phase(of(emptied), parity ^ 1u);
  }
};

/// Makes the maps of segment `other` usable, unless they are from the tile before. The thread that uses them.
template <class... Maps>
__device__ __forceinline__ void acquire_maps(int& acquired, int other, const Maps&... maps) {
  if (other == acquired) return;
  (prim::acquire_tensor_map(&maps), ...);
  acquired = other;
}

}  // namespace distattn::kernels::cuda
