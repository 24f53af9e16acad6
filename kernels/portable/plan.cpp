#include "kernels/portable/plan.hpp"

#include <algorithm>

#include "distattn/error.hpp"

namespace distattn::kernels::portable {

void RowPlan::add(const TileShape& shape, const Run& queries, int largest) {
  std::int64_t most = 0;
  for (int kv = 0; kv < shape.heads.kv_count; ++kv) most = std::max(most, HeadRows(shape, queries, 0, kv).count());
  const auto operation = static_cast<std::int32_t>(sizes.size());
  const TileSizes& size = sizes.emplace_back(tile_sizes(shape, most, largest));
  for (std::int32_t b = 0; b < shape.batch; ++b) {
    for (std::int32_t kv = 0; kv < shape.heads.kv_count; ++kv) {
      const std::int64_t rows = HeadRows(shape, queries, b, kv).count();
      for (std::int64_t first = 0; first < rows; first += size.queries) items.push_back({operation, b, kv, first});
    }
  }
}

void RowPlan::make(std::span<const AttendArgs> operations, int largest) {
  sizes.clear();
  items.clear();
  for (const AttendArgs& args : operations) add(args.shape, args.queries, largest);
}

void RowPlan::make(std::span<const AttendBackwardArgs> operations, int largest) {
  sizes.clear();
  items.clear();
  for (const AttendBackwardArgs& args : operations) add(args.shape, args.queries, largest);
}

void KeyPlan::make(std::span<const AttendBackwardArgs> operations, int largest) {
  columns.clear();
  contributions.clear();
  items.clear();
  for (std::size_t i = 0; i < operations.size(); ++i) {
    for (std::size_t side = 0; side < operations[i].keys.size(); ++side) {
      contributions.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(side)});
    }
  }
  const auto side_of = [&](const Contribution& each) -> const KeySide& {
    return operations[static_cast<std::size_t>(each.operation)].keys[static_cast<std::size_t>(each.side)];
  };
  // Those that add to one gradient are done by one team, in the order of the list.
  std::sort(contributions.begin(), contributions.end(), [&](const Contribution& a, const Contribution& b) {
    const auto *of_a = side_of(a).dk.data, *of_b = side_of(b).dk.data;
    return of_a != of_b                 ? std::less<const void*>()(of_a, of_b)
           : a.operation != b.operation ? a.operation < b.operation
                                        : a.side < b.side;
  });
  for (std::size_t first = 0, end; first < contributions.size(); first = end) {
    const KeySide& side = side_of(contributions[first]);
    for (end = first; end < contributions.size() && side_of(contributions[end]).dk.data == side.dk.data; ++end) {
      DISTATTN_EXPECT(side_of(contributions[end]).keys.count == side.keys.count || side.dk.data == nullptr);
    }
    if (side.keys.count == 0) continue;
    const TileShape& shape = operations[static_cast<std::size_t>(contributions[first].operation)].shape;
    const auto column = static_cast<std::int32_t>(columns.size());
    const TileSizes sizes =
        columns.emplace_back(Column{tile_sizes(shape, unbounded, largest), first, end - first}).sizes;
    for (std::int32_t b = 0; b < shape.batch; ++b) {
      for (std::int32_t kv = 0; kv < shape.heads.kv_count; ++kv) {
        for (std::int64_t key = 0; key < side.keys.count; key += sizes.keys) items.push_back({column, b, kv, key});
      }
    }
  }
}

}  // namespace distattn::kernels::portable
