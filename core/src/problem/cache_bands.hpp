#pragma once
/// Which queries see which keys of a cache that holds some of a sequence's tokens.

#include <cstdint>
#include <vector>

#include "distattn/band.hpp"
#include "distattn/dealing.hpp"

namespace distattn {

/// Appends the bands between positions of `queries`, which have stride 1, and numbers of the keys that `rank` stores: a
/// query sees the keys at its own position and before it, `left` of them, or all if it is -1.
void append_cache_bands(const Dealing& dealing, Rank rank, const Run& queries, std::int64_t left,
                        std::vector<Band>& bands);

}  // namespace distattn
