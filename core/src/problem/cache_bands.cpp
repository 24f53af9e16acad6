#include "core/src/problem/cache_bands.hpp"

#include <algorithm>

namespace distattn {

namespace {

/// How the number of stored tokens before a position goes on from there: by one a token, or not at all.
struct Stretch {
  bool grows;
  std::int64_t end;  ///< position where that changes
};

Stretch stretch_at(const Dealing& dealing, Rank rank, std::int64_t position) {
  if (position < 0) return {false, 0};
  if (dealing.ranks == 1) return {true, unbounded};
  const std::int64_t block = position / dealing.block;
  const std::int64_t until = (rank - block % dealing.ranks + dealing.ranks) % dealing.ranks;
  return until == 0 ? Stretch{true, (block + 1) * dealing.block} : Stretch{false, (block + until) * dealing.block};
}

}  // namespace

void append_cache_bands(const Dealing& dealing, Rank rank, const Run& queries, std::int64_t left,
                        std::vector<Band>& bands) {
  const auto before = [&](std::int64_t position) { return dealing.stored(std::max<std::int64_t>(position, 0), rank); };
  const std::int64_t last = queries.start + queries.count;
  std::int64_t q = queries.start;
  while (q < last) {
    const Stretch newest = stretch_at(dealing, rank, q);
    const Stretch oldest = left < 0 ? Stretch{false, unbounded} : stretch_at(dealing, rank, q - left);
    const std::int64_t end = std::min({last, newest.end, left < 0 ? unbounded : oldest.end + left});
    Band band{.q0 = q, .q1 = end};
    // Numbers grow with positions on one side of the band, on both or on neither.
    const std::int64_t past = before(q + 1), first = left < 0 ? 0 : before(q - left);
    if (newest.grows) {
      band.lo = q - (past - 1);
    } else {
      band.k1 = past;
    }
    if (oldest.grows) {
      band.hi = q - first;
    } else {
      band.k0 = first;
    }
    if (newest.grows || first < past) bands.push_back(band);
    q = end;
  }
}

}  // namespace distattn
