#pragma once
/// A grid over the tiles of a pass that are too many to be drawn one by one.

#include <nlohmann/json.hpp>

#include "distattn/schedule.hpp"

namespace distattn {

/// {"queries": Q, "keys": K, "groups": G, "rows": [[rank or −1, repetitions, …], …]}, row i of head group g at g·Q + i.
/// A cell has about as many segments as any other, that lie next to each other, and the rank that computes most of its
/// pairs. Segments without tokens are in none.
nlohmann::ordered_json cells_of(const Schedule& schedule);

}  // namespace distattn
