#pragma once
/// One rank's program from its tiles and messages: buffers with lifetimes, merges, and what orders the lanes.

#include <cstdint>
#include <span>
#include <vector>

#include "core/src/lower/gathers.hpp"
#include "core/src/lower/routing.hpp"
#include "core/src/schedule/value_index.hpp"
#include "distattn/lower.hpp"

namespace distattn {

/// A tile of this rank in program step `number`.
struct PlacedTile {
  int number;
  Tile tile;
};

/// Builds the program of `rank`; tiles in order of number, messages that the rank sends or receives in any order, the
/// gathers of which it is a member in that of all ranks.
RankProgram build_program(const Outline& outline, const Tiles& tiles, const ValueIndex& values, Rank rank,
                          std::span<const PlacedTile> placed, const std::vector<Message>& messages,
                          std::span<const RowGather* const> gathers);

}  // namespace distattn
