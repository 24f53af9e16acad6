#include <utility>

#include "distattn/error.hpp"
#include "distattn/table.hpp"

namespace distattn {
namespace {

/// Whether a step of Algorithm 2 is the last one of an even number of ranks, in which half of them have nothing left.
bool is_half_idle(int ranks, int step) { return ranks % 2 == 0 && ranks > 1 && step == ranks / 2; }

void emit_balanced(const Tiles& tiles, int step, Rank rank, const Table::Sink& sink) {
  const int ranks = tiles.ranks();
  if (rank >= step)
    emit_tiles(tiles, 0, rank, rank - step, sink);
  else if (!is_half_idle(ranks, step))
    emit_tiles(tiles, 0, rank - step + ranks, rank, sink);
}

void emit_balanced_split(const Tiles& tiles, int step, Rank rank, const Table::Sink& sink) {
  if (!is_half_idle(tiles.ranks(), step)) return emit_balanced(tiles, step, rank, sink);
  const bool helps = rank < step;
  const Rank owner = helps ? rank + step : rank, helper = helps ? rank : rank - step;
  const SegmentId kept = tiles.queries_of(owner).front();
  emit_tiles(tiles, 0, owner, helper, [&](const Tile& tile) {
    if ((tile.query == kept) != helps) sink(tile);
  });
}

Table triangle(std::shared_ptr<const Tiles> tiles, void (*emit)(const Tiles&, int, Rank, const Table::Sink&)) {
  DISTATTN_EXPECT(tiles->groups() == 1);
  DISTATTN_EXPECT(!tiles->sees_future());
  const int steps = tiles->ranks() / 2 + 1;
  return {steps, [tiles = std::move(tiles), emit](int step, Rank rank, const Table::Sink& sink) {
            emit(*tiles, step, rank, sink);
          }};
}

}  // namespace

Table balanced(std::shared_ptr<const Tiles> tiles) { return triangle(std::move(tiles), emit_balanced); }

Table balanced_split(std::shared_ptr<const Tiles> tiles) { return triangle(std::move(tiles), emit_balanced_split); }

}  // namespace distattn
