#include "cli/tools/page/cells.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cli/tools/draw/step_contents.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t most_cells = 200'000;

/// Pairs of one rank in the cells of the grid, by cell.
using Pairs = std::unordered_map<std::size_t, std::int64_t>;

/// The segments that have tokens, in a line, cut into cells.
struct Side {
  std::vector<std::size_t> places;  ///< of each segment
  std::size_t segments = 0, cells = 0;

  Side(const std::vector<Segment>& all, std::size_t most) : places(all.size()) {
    std::vector<std::size_t> order;
    bool interleaved = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].run.count > 0) order.push_back(i);
      interleaved = interleaved || (all[i].run.stride > 1 && all[i].run.count > 1);
    }
    if (!interleaved) {
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return all[a].run.start < all[b].run.start; });
    }
    for (std::size_t place = 0; place < order.size(); ++place) places[order[place]] = place;
    segments = order.size();
    cells = std::min(segments, most);
  }

  std::size_t cell(SegmentId segment) const { return places[index(segment)] * cells / segments; }
};

struct Grid {
  Side queries, keys;
  std::size_t groups;

  std::size_t cell(const DrawnTile& tile) const {
    const std::size_t row = queries.cell(tile.query.segment), column = keys.cell(tile.key.segment);
    return (index(tile.query.group) * queries.cells + row) * keys.cells + column;
  }
};

Grid grid_of(const Sharding& sharding) {
  const std::size_t groups = sharding.groups.size();
  const auto side = static_cast<std::size_t>(std::sqrt(static_cast<double>(most_cells) / static_cast<double>(groups)));
  const std::size_t most = std::max<std::size_t>(side, 1);
  return {Side(sharding.queries, most), Side(sharding.keys, most), groups};
}

Pairs pairs_of(const Schedule& schedule, const StepContents& contents, Rank rank, const Grid& grid) {
  Pairs pairs;
  const std::size_t steps = schedule.ranks[index(rank)].steps.size();
  for (std::size_t s = 0; s < steps; ++s) {
    for (const DrawnTile& tile : contents.tiles(rank, static_cast<StepId>(s))) pairs[grid.cell(tile)] += tile.pairs;
  }
  return pairs;
}

}  // namespace

Json cells_of(const Schedule& schedule) {
  const Grid grid = grid_of(schedule.outline.sharding);
  const StepContents contents(schedule);
  struct Most {
    std::int64_t pairs = 0;
    Rank rank = -1;
  };
  std::vector<Most> cells(grid.queries.cells * grid.keys.cells * grid.groups);
  for (Rank rank = 0; rank < static_cast<Rank>(schedule.ranks.size()); ++rank) {
    for (const auto& [cell, pairs] : pairs_of(schedule, contents, rank, grid)) {
      if (pairs > cells[cell].pairs) cells[cell] = {pairs, rank};
    }
  }
  Json rows = Json::array();
  for (std::size_t begin = 0; begin < cells.size(); begin += grid.keys.cells) {
    Json row = Json::array();
    for (std::size_t i = begin, end = begin; i < begin + grid.keys.cells; i = end) {
      while (end < begin + grid.keys.cells && cells[end].rank == cells[i].rank) ++end;
      row.push_back(cells[i].rank);
      row.push_back(end - i);
    }
    rows.push_back(std::move(row));
  }
  return {
      {"queries", grid.queries.cells}, {"keys", grid.keys.cells}, {"groups", grid.groups}, {"rows", std::move(rows)}};
}

}  // namespace distattn
