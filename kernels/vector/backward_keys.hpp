#pragma once
/// What the queries of a block of a backward pass see, and what will be asked for next.

#include "kernels/vector/backward_scratch.hpp"
#include "kernels/vector/packing.hpp"
#include "kernels/vector/visible.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// What the end of a block and the next block will ask memory for. Brought nearer while the block's last keys are
/// multiplied: what comes earlier is gone again by then.
struct NextRows {
  Prefetch d_queries, queries, d_outputs;
  bool due = false;

  DISTATTN_INLINE void some() {
    if (!due) return;
    d_queries.some();
    queries.some();
    d_outputs.some();
  }
};

/// What the queries of a block see.
struct BlockKeys : KeyRanges {
  int rows;  ///< a multiple of row_unit
  SeenKeys block;
  SeenKeys tile[backward_rows / tile_rows];  // by queries of a tile of scores
  SeenKeys sum[backward_rows / sum_rows];    // by queries of a tile of dQ

  /// Of keys `among`.
  BlockKeys(const std::int32_t* begins, const std::int32_t* ends, int count, Range among)
      : KeyRanges{begins, ends}, rows(rounded_up(count, row_unit)), block(seen_keys(begins, ends, count, among)) {
    for (int i = 0; i < rows; i += tile_rows) tile[i / tile_rows] = seen_keys(begin + i, end + i, tile_rows, among);
    for (int i = 0; i < rows; i += sum_rows) sum[i / sum_rows] = seen_keys(begin + i, end + i, sum_rows, among);
  }

  DISTATTN_INLINE Bits hidden(int row, int key) const {
    const Bits keys([&](auto lane) { return key + static_cast<int>(lane); });
    return outside(Bits(begin[row]), Bits(end[row]), keys);
  }
  /// From the first to the last query, in whole tiles, that sees some of the `count` keys from `key` on.
  Range seeing(int key, int count) const {
    const Range tiles = groups_seeing(tile, rows / tile_rows, key, count);
    return {tiles.from * tile_rows, tiles.to * tile_rows};
  }
};

/// Makes 0 of what a tile of rows has for keys of the vectors `some` that a row does not see.
DISTATTN_INLINE void hide(const BlockKeys& keys, int row, int key, Range some, float* into) {
  for (int i = 0; i < tile_rows; ++i) {
    for (int v = some.from; v < some.to; ++v) {
      float* const at = into + i * backward_keys + v * lanes;
      store(at, replace(keys.hidden(row + i, key + v * lanes), load(at), 0.f));
    }
  }
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
