#pragma once
/// Which rank of a node sends what the node has merged to another node.

#include <cstdint>
#include <span>
#include <vector>

#include "distattn/types.hpp"

namespace distattn {

/// A result that leaves a node: any of the ranks that contribute can be its gate.
struct Departure {
  std::int64_t bytes;
  std::vector<Rank> candidates;  ///< the first is preferred: no step is added for it
  Rank gate;                     ///< one of them
};

/// Begins with the preferred gates and moves departures away from whoever sends most, as long as that lowers what the
/// busiest of the two ranks sends. `sent` is what each rank sends to other nodes besides, and then altogether.
void spread_gates(std::span<Departure> departures, std::vector<std::int64_t>& sent);

}  // namespace distattn
