#pragma once
/// What happened when, on every rank and lane: measured by execute, predicted by simulate, drawn by the same code.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "distattn/schedule.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// One step of one rank, in seconds from the start of the pass.
struct Span {
  Rank rank = 0;
  Lane lane = Lane::compute;
  StepId step{};
  int number = 0;
  double start_s = 0, end_s = 0;
};

struct Timeline {
  std::vector<Span> spans;  ///< by rank, then by start
  double seconds = 0;       ///< until the last rank has its results
  /// Seconds in which a rank's compute lane had nothing running, summed over ranks, as a share of ranks · seconds.
  double idle_share(int ranks) const;
  /// Exposed communication: seconds in which a rank's compute lane has nothing running while one of its exchanges is
  /// under way, on average over ranks.
  double exposed_s(int ranks) const;
};

/// All ranks' timelines as one: rank r's, measured on its own, began at begins_s[r] on a common clock. Time 0 is when
/// the first of them began.
Timeline join(std::span<const Timeline> ranks, std::span<const double> begins_s);

}  // namespace distattn
#pragma GCC visibility pop
