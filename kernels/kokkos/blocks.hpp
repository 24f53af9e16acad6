#pragma once
/// Cutting an operation's queries into blocks, and finding what mask each block meets.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/arguments.hpp"

namespace distattn::kernels::kokkos {

/// One band of one key side that some query of a block sees.
struct Touch {
  std::int32_t block, side, band;
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

/// A list's operations cut into blocks. Kept from call to call, so that a call like the last one allocates nothing.
struct QueryBlocks {
  std::vector<QueryBlock> blocks;
  std::vector<Touch> touches;

  void clear();
  /// Appends the blocks of one operation: `rows` queries each but for the last one.
  void cut(std::int32_t operation, const Run& queries, std::span<const KeySide> sides, std::int64_t rows);
};

}  // namespace distattn::kernels::kokkos
