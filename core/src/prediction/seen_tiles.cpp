#include "core/src/prediction/seen_tiles.hpp"

#include <utility>

#include "core/src/parallel.hpp"

namespace distattn {
namespace {

/// 128 MiB of them.
constexpr std::size_t most_remembered = std::size_t{1} << 22;

}  // namespace

void SeenTiles::remember() {
  const std::size_t queries = tiles_.sharding().queries.size(), keys = tiles_.sharding().keys.size();
  if (queries * keys > most_remembered) return;
  std::vector<SeenTile> seen(queries * keys);
  for_each_in_parallel(static_cast<int>(queries), 32, [&](int query) {
    const auto i = static_cast<SegmentId>(query);
    for (std::size_t key = 0; key < keys; ++key) {
      const auto j = static_cast<SegmentId>(key);
      if (tiles_.live(i, j)) seen[at(i, j)] = count(i, j);
    }
  });
  seen_ = std::move(seen);
}

}  // namespace distattn
