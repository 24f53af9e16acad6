#include "distattn/lower.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "core/src/lower/program_builder.hpp"
#include "core/src/parallel.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {

struct Lowering::State {
  Outline outline;
  std::shared_ptr<const Tiles> tiles;
  Table table;
  ValueIndex values;
  Traffic traffic;
  std::vector<RowGather> gathers;
  std::vector<std::uint32_t> by_rank;   // messages of rank 0 (sent or received), then of rank 1, …
  std::vector<std::size_t> rank_begin;  // into by_rank

  void index_messages() {
    rank_begin.assign(index(tiles->ranks()) + 1, 0);
    for (const Message& m : traffic.messages) {
      ++rank_begin[index(m.from) + 1];
      ++rank_begin[index(m.to) + 1];
    }
    for (std::size_t r = 1; r < rank_begin.size(); ++r) rank_begin[r] += rank_begin[r - 1];
    by_rank.resize(rank_begin.back());
    std::vector<std::size_t> next = rank_begin;
    for (std::size_t m = 0; m < traffic.messages.size(); ++m) {
      by_rank[next[index(traffic.messages[m].from)]++] = static_cast<std::uint32_t>(m);
      by_rank[next[index(traffic.messages[m].to)]++] = static_cast<std::uint32_t>(m);
    }
  }
};

Lowering::Lowering(std::string name, std::shared_ptr<const Tiles> tiles, Table table, Pass pass, Mode mode,
                   Routes routes)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  if (routes.node_size < 0 || routes.ahead < 0) {
    refuse(fmt::format("routes with {} ranks a node and messages {} steps early (both count from 0): give 0 or more",
                       routes.node_size, routes.ahead));
  }
  if (routes.node_size >= tiles->ranks()) routes.node_size = 0;
  s.outline = {std::move(name), tiles->sharding(), pass, mode, routes.node_size};
  s.tiles = std::move(tiles);
  s.table = std::move(table);
  s.values = ValueIndex(s.outline.sharding);
  s.traffic =
      route(s.outline, collect_uses(s.outline.name, *s.tiles, s.table, s.values), s.values, s.table.steps, routes);
  s.gathers = find_gathers(s.outline, s.values, s.traffic.messages);
  s.index_messages();
}
Lowering::~Lowering() = default;
Lowering::Lowering(Lowering&&) noexcept = default;

const Outline& Lowering::outline() const { return state_->outline; }
const Tiles& Lowering::tiles() const { return *state_->tiles; }

RankProgram Lowering::program(Rank rank) const {
  const State& s = *state_;
  std::vector<PlacedTile> placed;
  for (int step = 0; step < s.table.steps; ++step) {
    s.table.tiles(step, rank, [&](const Tile& tile) { placed.push_back({step + s.traffic.lead, tile}); });
  }
  std::vector<Message> messages;
  const auto r = index(rank);
  for (std::size_t m = s.rank_begin[r]; m < s.rank_begin[r + 1]; ++m) {
    messages.push_back(s.traffic.messages[s.by_rank[m]]);
  }
  std::vector<const RowGather*> gathers;
  for (const RowGather& gather : s.gathers) {
    if (std::binary_search(gather.members.begin(), gather.members.end(), rank)) gathers.push_back(&gather);
  }
  return build_program(s.outline, *s.tiles, s.values, rank, placed, messages, gathers);
}

Schedule lower(const Lowering& lowering) {
  Schedule schedule{lowering.outline(), {}};
  schedule.ranks.resize(index(lowering.tiles().ranks()));
  for_each_rank(lowering.tiles().ranks(), [&](Rank rank) { schedule.ranks[index(rank)] = lowering.program(rank); });
  return schedule;
}

}  // namespace distattn
