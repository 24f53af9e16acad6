#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "distattn/error.hpp"
#include "distattn/index.hpp"
#include "distattn/layout.hpp"

namespace distattn {
namespace {

void check_segment(const Segment& segment, const char* side, std::size_t i, IndexRange positions, int ranks) {
  const Run& run = segment.run;
  if (segment.owner < 0 || segment.owner >= ranks)
    refuse(fmt::format("{}[{}] belongs to rank {} (there are {}): choose one of them", side, i, segment.owner, ranks));
  const std::int64_t most = positions.end - positions.begin;
  const bool inside = run.count >= 0 && run.count <= most && run.stride >= 1 &&
                      (run.count == 0 || (positions.begin <= run.start && run.start < positions.end &&
                                          run.count - 1 <= (positions.end - 1 - run.start) / run.stride));
  if (!inside)
    refuse(fmt::format("{}[{}] leaves the sequence ({} positions from {} on): keep start, count and stride inside",
                       side, i, most, positions.begin));
}

/// ", position 7 is in none", of segments that share none; empty where looking for it would take long.
std::string first_missing(std::span<const Segment> segments, IndexRange positions) {
  constexpr std::int64_t most = std::int64_t{1} << 26;
  if (positions.end - positions.begin > most) return "";
  std::vector<bool> owned(index(positions.end - positions.begin));
  for (const Segment& segment : segments) {
    for (std::int64_t i = 0; i < segment.run.count; ++i) owned[index(segment.run.at(i) - positions.begin)] = true;
  }
  const auto missing = std::find(owned.begin(), owned.end(), false) - owned.begin();
  return fmt::format(", position {} is in none", positions.begin + missing);
}

/// None twice, all inside the sequence and as many as it has: then each is there once.
void check_segments(std::span<const Segment> segments, const char* side, IndexRange positions, int ranks) {
  for (std::size_t i = 0; i < segments.size(); ++i) check_segment(segments[i], side, i, positions, ranks);
  std::vector<std::size_t> order(segments.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t i) { return segments[i].run.count == 0; });
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return segments[a].run.start < segments[b].run.start; });
  const Band same_position{.lo = 0, .hi = 0};
  std::vector<std::size_t> open;  // those that reach the sweep's position
  for (const std::size_t next : order) {
    const Run& run = segments[next].run;
    std::erase_if(open, [&](std::size_t i) { return segments[i].run.at(segments[i].run.count - 1) < run.start; });
    for (const std::size_t i : open)
      if (touches(same_position, segments[i].run, run))
        refuse(fmt::format("{}[{}] and [{}] share a position (each is owned once): cut them anew", side,
                           std::min(i, next), std::max(i, next)));
    open.push_back(next);
  }
  std::int64_t missing = positions.end - positions.begin;
  for (const Segment& segment : segments) missing -= segment.run.count;
  if (missing == 0) return;
  const std::int64_t all = positions.end - positions.begin;
  refuse(
      fmt::format("{} hold fewer positions than the sequence ({} of {}, each is owned once{}): cut them anew, or give "
                  "a layout for as many",
                  side, all - missing, all, first_missing(segments, positions)));
}

void check_groups(std::span<const HeadGroup> groups, const Problem& problem) {
  int next = 0;
  for (std::size_t u = 0; u < groups.size(); ++u) {
    const HeadGroup& group = groups[u];
    const bool follows = group.q0 == next && group.q_count >= 1 && group.q_count <= problem.heads - next;
    if (!follows)
      refuse(fmt::format("groups[{}] does not follow its predecessor ({} heads in a row): start it at head {}", u,
                         problem.heads, next));
    next += group.q_count;
    const int kv0 = group.q0 / problem.heads_per_kv();
    const int kv_count = (next - 1) / problem.heads_per_kv() + 1 - kv0;
    if (group.kv0 != kv0 || group.kv_count != kv_count)
      refuse(fmt::format("groups[{}] does not hold its key heads (its queries use {} from {} on): give these", u,
                         kv_count, kv0));
  }
  if (next != problem.heads)
    refuse(fmt::format("groups hold {} of {} heads (each belongs to one): add the others", next, problem.heads));
}

}  // namespace

void check(const Sharding& sharding) {
  const Problem& problem = sharding.problem;
  check(problem);
  if (sharding.ranks < 1) refuse(fmt::format("{} ranks (someone has to compute): give 1 or more", sharding.ranks));
  const bool one_list = sharding.layout.kind == LayoutKind::given && problem.seq_q == problem.seq_kv;
  const bool before_keys = std::any_of(sharding.queries.begin(), sharding.queries.end(),
                                       [](const Segment& segment) { return segment.run.start < 0; });
  if (sharding.layout.kind == LayoutKind::given && problem.first_query() < 0 && !before_keys) {
    refuse(
        fmt::format("{} queries and {} keys (the layout deals out positions of keys): give no more queries than keys",
                    problem.seq_q, problem.seq_kv));
  }
  // Queries are the last positions of keys: which of these are missing says more.
  if (!one_list) check_segments(sharding.keys, "keys", {0, problem.seq_kv}, sharding.ranks);
  check_segments(sharding.queries, one_list ? "segments" : "queries", {problem.first_query(), problem.seq_kv},
                 sharding.ranks);
  if (one_list) check_segments(sharding.keys, "keys", {0, problem.seq_kv}, sharding.ranks);
  check_groups(sharding.groups, problem);
}

}  // namespace distattn
