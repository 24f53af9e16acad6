#include <algorithm>
#include <span>
#include <utility>

#include "core/src/tables/placed_tiles.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

/// A rank's tiles, those of a step after those of the steps before it.
struct TilesOfRank {
  std::vector<Tile> tiles;
  std::vector<std::size_t> ends;  // by step

  std::span<const Tile> of(std::size_t step) const {
    const std::size_t begin = step == 0 ? 0 : ends[step - 1];
    return std::span(tiles).subspan(begin, ends[step] - begin);
  }
};

/// The step of a tile that is not a rank's own.
class Steps {
 public:
  Steps(const Placement& placement, const PlacedTiles& tiles, Staging staging)
      : most_(2 * placement.ranks),
        node_size_(placement.node_size),
        part_of_(placement.part_of),
        tiles_(tiles),
        staging_(staging) {}

  int of(Rank rank, const Tile& tile, int distance) const {
    switch (staging_) {
      case Staging::together:
        return 1;
      case Staging::by_distance:
        return distance;
      case Staging::by_distance_late:
        return most_ + distance - tiles_.farthest(tile.query, tile.key);
      case Staging::by_part:
        return part_of_.empty() ? 1 : 1 + part_of_[index(tile.query)];
      case Staging::by_place:
        break;
    }
    const Rank query = tiles_.owner(tile.query), key = tiles_.owner(tile.key);
    const bool far_key = node_of(key) != node_of(rank);
    if (!far_key && node_of(query) == node_of(rank)) return 1;
    const Rank sender = far_key ? key : query;
    return 2 + (distance - 1) * node_size_ + (sender % node_size_ - rank % node_size_ + node_size_) % node_size_;
  }

 private:
  int node_of(Rank rank) const { return rank / node_size_; }

  int most_;  // no distance is larger
  int node_size_;
  std::span<const std::int32_t> part_of_;
  const PlacedTiles& tiles_;
  Staging staging_;
};

/// Steps that no rank has tiles in are left out.
void close_gaps(std::vector<std::vector<std::pair<int, Tile>>>& staged) {
  std::vector<int> number;
  for (const auto& of_rank : staged) {
    for (const auto& [step, tile] : of_rank) {
      if (number.size() <= index(step)) number.resize(index(step) + 1);
      number[index(step)] = 1;
    }
  }
  int next = 0;
  for (int& step : number) step = step == 0 ? 0 : next++;
  for (auto& of_rank : staged) {
    for (auto& [step, tile] : of_rank) step = number[index(step)];
  }
}

std::vector<std::vector<std::pair<int, Tile>>> staged_tiles(const Tiles& tiles, const Placement& placement, Pass pass) {
  const PlacedPass& how = placement.passes[pass];
  const PlacedTiles placed(tiles, placement);
  const Steps steps(placement, placed, how.staging);
  std::vector<std::vector<std::pair<int, Tile>>> staged(index(placement.ranks));
  // After a rank's own last message and not after everybody's: meanwhile what others return may still be on its way.
  std::vector<int> last_step(index(placement.ranks), 1);
  placed.for_each([&](Rank rank, const Tile& tile, int distance) {
    const int step = distance == 0 ? 0 : steps.of(rank, tile, distance);
    last_step[index(rank)] = std::max(last_step[index(rank)], step + 1);
    staged[index(rank)].emplace_back(step, tile);
  });
  for (std::size_t rank = 0; rank < how.last.size(); ++rank) {
    std::int32_t left = how.last[rank];
    auto& of_rank = staged[rank];
    for (std::size_t t = of_rank.size(); t-- > 0 && left > 0;) {
      if (of_rank[t].first != 0) continue;
      of_rank[t].first = last_step[rank];
      --left;
    }
  }
  close_gaps(staged);
  return staged;
}

Table placed(const std::shared_ptr<const Tiles>& tiles, const Placement& placement, Pass pass) {
  DISTATTN_EXPECT(tiles->groups() == placement.groups);
  auto staged = staged_tiles(*tiles, placement, pass);
  int steps = 0;
  for (const auto& of_rank : staged) {
    for (const auto& [step, tile] : of_rank) steps = std::max(steps, step + 1);
  }
  auto by_rank = std::make_shared<std::vector<TilesOfRank>>();
  for (auto& of_rank : staged) {
    std::stable_sort(of_rank.begin(), of_rank.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    TilesOfRank& kept = by_rank->emplace_back();
    kept.ends.assign(index(steps), 0);
    for (const auto& [step, tile] : of_rank) {
      kept.tiles.push_back(tile);
      kept.ends[index(step)] = kept.tiles.size();
    }
    for (std::size_t step = 1; step < kept.ends.size(); ++step)
      kept.ends[step] = std::max(kept.ends[step], kept.ends[step - 1]);
  }
  return {steps, [by_rank](int step, Rank rank, const Table::Sink& sink) {
            for (const Tile& tile : (*by_rank)[index(rank)].of(index(step))) sink(tile);
          }};
}

}  // namespace

PlacedTiles::PlacedTiles(const Tiles& tiles, const Placement& placement)
    : tiles_(tiles), placement_(placement), places_(placement.segments.size()) {
  std::vector<std::vector<int>> at(placement.meshes.size());
  for (std::size_t m = 0; m < at.size(); ++m) {
    at[m].assign(index(placement.ranks), 0);
    const std::vector<Rank>& ranks = placement.meshes[m].ranks;
    for (std::size_t r = 0; r < ranks.size(); ++r) at[m][index(ranks[r])] = static_cast<int>(r);
  }
  for (std::size_t s = 0; s < placement.mesh_of.size(); ++s) {
    if (placement.mesh_of[s] < 0) continue;
    const auto m = index(placement.mesh_of[s]);
    const MeshShape& shape = placement.meshes[m].shape;
    const int place = at[m][index(placement.segments[s].owner)] / shape.groups;
    places_[s] = {place % shape.rows, place / shape.rows};
  }
}

Recipe recipe_of(const std::shared_ptr<const Placement>& placement, Pass pass) {
  Recipe recipe;
  recipe.name = "placed";
  recipe.layout = {LayoutKind::given, 1, {placement, &placement->segments}};
  recipe.groups = placement->groups;
  recipe.table = [placement, pass](const std::shared_ptr<const Tiles>& tiles, int) {
    return placed(tiles, *placement, pass);
  };
  return recipe;
}

}  // namespace distattn
