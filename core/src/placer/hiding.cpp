#include <algorithm>
#include <vector>

#include "core/src/placer/placer.hpp"
#include "core/src/tables/placed_tiles.hpp"

namespace distattn {
namespace {

constexpr double more_than_needed = 1.1;

/// What a rank's messages and own tiles are, of one pass.
struct Traffic {
  std::vector<std::pair<int, SegmentId>> queries, keys;  // that it receives, by group
  std::vector<double> own_seconds;                       // by tile
  double arriving = 0, leaving = 0, returning = 0;       // bytes in, of results out, of results in
};

class Hiding {
 public:
  Hiding(const Placement& placement, const Tiles& tiles, const PlacementCosts& costs)
      : placement_(placement), tiles_(tiles), costs_(costs), placed_(tiles, placement), groups_(placement.groups) {}

  std::vector<std::int32_t> last_tiles(const PassCosts& pass) const {
    std::vector<Traffic> ranks(index(placement_.ranks));
    placed_.for_each([&](Rank rank, const Tile& tile, int distance) {
      Traffic& traffic = ranks[index(rank)];
      if (distance == 0) {
        traffic.own_seconds.push_back(seconds(pass, tile));
        return;
      }
      if (placed_.owner(tile.query) != rank) traffic.queries.emplace_back(tile.group, tile.query);
      if (placed_.owner(tile.key) != rank) traffic.keys.emplace_back(tile.group, tile.key);
    });
    count_bytes(pass, ranks);
    std::vector<std::int32_t> last;
    for (const Traffic& traffic : ranks) last.push_back(last_of(traffic));
    return last;
  }

 private:
  double seconds(const PassCosts& pass, const Tile& tile) const {
    const auto tokens = [](const Segment& segment) { return static_cast<double>(segment.run.count); };
    return pass.tile(static_cast<double>(tiles_.pairs(tile.query, tile.key)), tokens(tiles_.query(tile.query)),
                     tokens(tiles_.key(tile.key))) /
           groups_;
  }

  void count_bytes(const PassCosts& pass, std::vector<Traffic>& ranks) const {
    const TokenBytes& bytes = pass.bytes();
    const double copies = std::max(1.0, static_cast<double>(groups_) / costs_.kv_heads);
    const auto each_once = [](auto& values) {
      std::sort(values.begin(), values.end());
      values.erase(std::unique(values.begin(), values.end()), values.end());
    };
    for (Traffic& traffic : ranks) {
      each_once(traffic.queries);
      each_once(traffic.keys);
      const auto add = [&](SegmentId segment, double input, double result) {
        const double tokens = static_cast<double>(tiles_.key(segment).run.count) / groups_;
        traffic.arriving += tokens * input;
        traffic.leaving += tokens * result;
        ranks[index(placed_.owner(segment))].returning += tokens * result;
      };
      for (const auto& [group, query] : traffic.queries) add(query, bytes.query, bytes.output);
      for (const auto& [group, key] : traffic.keys) add(key, bytes.key_value * copies, bytes.dkey_value * copies);
    }
  }

  std::int32_t last_of(const Traffic& traffic) const {
    const double back = std::max(traffic.leaving, traffic.returning) / costs_.link().bytes_per_s;
    if (back == 0) return 0;
    const double arriving = traffic.arriving / costs_.link().bytes_per_s;
    double own = 0;
    for (const double each : traffic.own_seconds) own += each;
    const double wanted = std::min(more_than_needed * back, own * back / (back + arriving));
    double late = 0;
    std::int32_t count = 0;
    for (std::size_t t = traffic.own_seconds.size(); t-- > 0 && late < wanted; ++count) late += traffic.own_seconds[t];
    return count;
  }

  const Placement& placement_;
  const Tiles& tiles_;
  const PlacementCosts& costs_;
  PlacedTiles placed_;
  int groups_;
};

}  // namespace

void hide_results(Placement& placement, const Tiles& tiles, const PlacementCosts& costs, Passes passes) {
  const Hiding hiding(placement, tiles, costs);
  const std::size_t count = passes == Passes::both ? 2 : 1;
  for (std::size_t pass = 0; pass < count; ++pass) placement.passes[pass].last = hiding.last_tiles(costs.passes[pass]);
}

}  // namespace distattn
