#pragma once
/// Cutting an operation's queries into blocks, and finding what mask each block meets.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/arguments.hpp"

namespace distattn::kernels::vector {

/// One band of one key side that some query of a block sees. Those of a level reach different queries, and the bands of
/// a query are on levels in their order: a query's sums do not depend on its neighbours.
struct Touch {
  std::int32_t block, side, level, band;
  friend auto operator<=>(const Touch&, const Touch&) = default;
};

/// Queries [first, first + rows) of one operation, the same for all its heads.
struct QueryBlock {
  std::int32_t operation;
  std::int32_t rows;
  std::int64_t first;
  std::size_t touches, touches_end;  ///< into QueryBlocks::touches
  std::int64_t pairs;                ///< visible ones, for each head
};

/// Sets what each of `queries` sees of `keys`, as range of indices counted from `window.begin` and cut to `window`,
/// through the first of `touches` and those after it on the same side and level: documents side by side take one pass
/// over the keys, a tree as many as its tokens have nodes above them. A query that no such band reaches, and an entry
/// past the queries, gets {0, 0}. Returns how many touches that were.
std::size_t ranges_of_pass(std::span<const Touch> touches, std::span<const Band> bands, const Run& queries,
                           const Run& keys, IndexRange window, std::span<std::int32_t> begin,
                           std::span<std::int32_t> end);

/// A list's operations cut into blocks. Kept from call to call, so that a call like the last one allocates nothing.
struct QueryBlocks {
  std::vector<QueryBlock> blocks;
  std::vector<Touch> touches;

  std::span<const Touch> touches_of(const QueryBlock& block) const {
    return std::span(touches).subspan(block.touches, block.touches_end - block.touches);
  }

  void clear();
  /// Appends the blocks of one operation: `rows` queries each but for the last one.
  void cut(std::int32_t operation, const Run& queries, std::span<const KeySide> sides, std::int64_t rows);

 private:
  void find_levels(const QueryBlock& block, const Run& queries, std::span<const KeySide> sides);

  std::vector<std::int32_t> levels_;  // of a block's queries: past those of the bands that reach them
};

}  // namespace distattn::kernels::vector
