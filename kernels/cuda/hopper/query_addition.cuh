#pragma once
/// dQ of blocks that own keys, on Hopper: dSᵀ is shared, multiplied by the keys, and added by the copy engine
/// to an accumulator that other blocks add to as well, in any order.

#include "kernels/cuda/hopper/key_blocks.cuh"

namespace distattn::kernels::cuda {

/// What a shape of key blocks has beside, if dQ is wanted: dS, and boxes through which a tile's dQ is added.
template <class Base, bool wants_dq_>
struct QueryAdditionShape : Base {
  using ScoreTile = PanelTile<Base::tile.rows, Base::tile.columns>;  ///< of dSᵀ
  static constexpr bool wants_dq = wants_dq_;
  static constexpr int dq_box_rows = wants_dq ? 64 : 0;
  static constexpr int dq_box_columns = box_row_bytes / 4, dq_box_bytes = 64 * box_row_bytes;
  static constexpr int dq_bytes = wants_dq ? Base::tile.columns * Base::KTile::panels * 64 * 4 : 0;
  static constexpr int score_bytes = wants_dq ? ScoreTile::bytes : 0;
  static constexpr int addition_bytes = 2 * score_bytes + dq_bytes;
};

/// Where that lies in shared memory. dS is there twice, as tiles that pass are.
template <class Shape>
struct QueryAdditionMemory {
  std::uint32_t begin;

  __device__ __forceinline__ std::uint32_t ds(const Stage& stage) const {
    return begin + stage.index * Shape::score_bytes;
  }
  __device__ __forceinline__ std::uint32_t dq(int box) const {
    return begin + 2 * Shape::score_bytes + static_cast<std::uint32_t>(box * Shape::dq_box_bytes);
  }
};

/// Whether some of the block's rows are past the end of its keys, where products count them.
template <class Shape>
__device__ __forceinline__ bool counts_rows_past_end(const BlockPlace& place, const Run& keys) {
  return Shape::wants_dq && place.block.row_begin + Shape::tile.rows > keys.count;
}

/// What the block's keys see of a tile of queries: nothing, past the segment's end.
template <class Shape>
__device__ __forceinline__ TileMasks<Shape::n_count> masks_of_keys(const AttendParams& p, const BlockPlace& place,
                                                                   const Run& keys, bool rows_past_end,
                                                                   const TileCursor& at) {
  TileMasks<Shape::n_count> masks(p, at, place.block.row_begin);
  if (Shape::wants_dq && rows_past_end) masks.hide_rows_past_end(place.block.row_begin, keys);
  return masks;
}

/// Shares this warpgroup's 64 rows of dSᵀ, which it has as the left operand of a product; `first` of row_of()'s is the
/// tile's first. Of the four matrices of a step, this lane says where a row of matrix lane/8 goes.
template <class Shape, int first = 0>
__device__ __forceinline__ void share_scores(const std::uint32_t (&ds)[Shape::n_count / 2][4], std::uint32_t tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp * 16 + lane % 16 - first;
  const std::uint32_t begin = Shape::ScoreTile::chunk_address(tile, row, lane / 16 * chunk);
  DISTATTN_UNROLL
  for (int k = 0; k < Shape::n_count / 2; ++k) {
    prim::store_matrices(chunks_on(begin, 2 * (k % 4)) + k / 4 * Shape::ScoreTile::panel_bytes, ds[k]);
  }
}

/// The piece that a lane stores in place of the n-th. Boxes are permuted so that one piece of two neighbouring rows
/// lies in the same banks, which 16 lanes would write at once: those of odd rows store another.
__device__ __forceinline__ constexpr int stored_piece(int lane, int n) { return n ^ lane / 4 % 2 * 2; }

/// Adds 64 rows and `columns` of a tile's dQ at a time, through boxes of shared memory. One for each warpgroup.
template <class Shape, int columns = 64>
struct QueryGradientAdder {
  static constexpr int pieces = columns / 8, boxes = columns / Shape::dq_box_columns;
  using ScoreTile = typename Shape::ScoreTile;
  using KTile = typename Shape::KTile;
  /// The first row and column.
  struct Part {
    int row, column;
  };

  QueryAdditionMemory<Shape> memory;
  std::uint32_t k;  ///< the block's keys
  int group, first_box;
  float dq[pieces][4];
  int acquired = -1;

  /// Multiplies dS, shared by all of its warpgroups, by the keys.
  __device__ __forceinline__ void start(const Part& part, const Stage& stage) {
    prim::fence_products(dq);
    const std::uint64_t l = ScoreTile::by_columns(memory.ds(stage), 0, part.row);
    const std::uint64_t r = KTile::by_columns(k, 0, part.column);
    DISTATTN_UNROLL
    for (int row = 0; row < KTile::rows; row += 16) {
      prim::multiply<typename Shape::Element, prim::Major::other, prim::Major::other>(dq, l + ScoreTile::step(row, 0),
                                                                                      r + KTile::step(row, 0), row > 0);
    }
  }

  /// Until the boxes have been added: while the product is on its way.
  __device__ __forceinline__ void await_boxes() const {
    if (leads()) prim::wait_for_stores<0>();
    prim::barrier_sync(first_barrier + group, 128);
  }

  /// Hands the product, awaited, to the copy engine through boxes that are free. `at`: the tile.
  __device__ __forceinline__ void add(const Part& part, const AttendParams& p, const BlockPlace& place,
                                      const HeadTileCursor& at) {
    const int first = stored_piece(static_cast<int>(threadIdx.x) % 32, 0), floats = 8 * first + column_of();
    const std::uint32_t begin = swizzled_chunk(memory.dq(first_box), row_of<1>(0, 0) % 64, floats / 4) +
                                static_cast<std::uint32_t>(floats % 4 * 4);
    const float factor = typename Shape::Map(p).factor();
    DISTATTN_UNROLL
    for (int n = 0; n < pieces; ++n) {
      const std::uint32_t into =
          chunks_on(begin, 2 * (n % 4)) + static_cast<std::uint32_t>(n / 4 * Shape::dq_box_bytes);
      const auto value = [&](int i) {
        const float here = dq[n][i], there = dq[n ^ 2][i];  // registers have no address to choose
        return (first == 0 ? here : there) * factor;
      };
      prim::store_shared(into, Pair{value(0), value(1)});
      prim::store_shared(into + 8 * box_row_bytes, Pair{value(2), value(3)});
    }
    prim::fence_proxy();
    prim::barrier_sync(first_barrier + group, 128);
    if (!leads()) return;
    const int other = p.visits[at.tile.visit].other, plane = place.batch * p.heads.q_count + at.head;
    const TensorMap& map = p.query_maps[other].dq;
    acquire_maps(acquired, other, map);
    DISTATTN_UNROLL
    for (int box = 0; box < boxes; ++box) {
      prim::add_box(&map, memory.dq(first_box + box), part.column + box * Shape::dq_box_columns,
                    at.tile.column + part.row, plane);
    }
    prim::commit_stores();
  }

 private:
  static constexpr int first_barrier = 2;  ///< of those with names, one for each warpgroup
  __device__ __forceinline__ static bool leads() { return threadIdx.x % 128 == 0; }
};

}  // namespace distattn::kernels::cuda
