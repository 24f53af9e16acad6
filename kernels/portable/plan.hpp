#pragma once
/// The blocks that a list of operations is cut into.

#include <span>
#include <vector>

#include "kernels/portable/key_gradients.hpp"

namespace distattn::kernels::portable {

/// Kept from call to call, so that a call like the last one allocates nothing.
struct RowPlan {
  std::vector<TileSizes> sizes;  ///< by operation
  std::vector<Item> items;       ///< blocks of queries

  /// `largest`: of tiles, as tile_sizes() takes it.
  void make(std::span<const AttendArgs> operations, int largest = largest_tile);
  void make(std::span<const AttendBackwardArgs> operations, int largest = largest_tile);

 private:
  void add(const TileShape& shape, const Run& queries, int largest);
};

/// Key segments that a list of operations computes gradients of.
struct KeyPlan {
  struct Column {
    TileSizes sizes;
    std::size_t first, count;  ///< into contributions: in the order of the list
  };
  std::vector<Column> columns;
  std::vector<Contribution> contributions;
  std::vector<Item> items;  ///< blocks of keys

  void make(std::span<const AttendBackwardArgs> operations, int largest = largest_tile);
};

}  // namespace distattn::kernels::portable
