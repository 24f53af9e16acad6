#pragma once
/// When each step ran, on every rank and lane: measured by the executor or predicted by simulate().

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
  double seconds = 0;       ///< time until the last rank has its results
  /// Time in which a rank's compute lane was idle, summed over ranks, as a share of ranks · seconds.
  double idle_share(int ranks) const;
  /// Exposed communication: seconds in which a rank's compute lane is idle while one of its exchanges is in progress,
  /// averaged over ranks.
  double exposed_s(int ranks) const;
};

/// Joins the timelines of all ranks. That of rank r, measured from its own start, began at begins_s[r] on a common
/// clock. Time 0 is the earliest start.
Timeline join(std::span<const Timeline> ranks, std::span<const double> begins_s);

}  // namespace distattn
#pragma GCC visibility pop
