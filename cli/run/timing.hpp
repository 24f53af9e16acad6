#pragma once
/// How long a pass took, measured by every rank and judged over all.

#include <chrono>
#include <vector>

#include "distattn/launch.hpp"
#include "distattn/timeline.hpp"

namespace distattn::cli {

/// When a rank began and ended a call of a pass, and its steps in between.
struct Call {
  std::chrono::steady_clock::time_point begin, end;
  Timeline timeline;
};
using RankCalls = std::vector<Call>;

/// Seconds of one pass: the first run, warm-up or not, and the measured ones' least, median and percentiles.
struct Timing {
  double first_s = 0, median_s = 0, least_s = 0, p10_s = 0, p90_s = 0;
  std::vector<double> runs_s;  ///< of the measured ones, by length
  Timeline timeline;           ///< of the measured run that is nearest the median
};

/// One Timing a pass, the same on every rank. `here` are the calls of this process's ranks: passes take turns, and
/// each was called `warmups` times before it counted. Collective.
std::vector<Timing> timings_of(World& world, const std::vector<RankCalls>& here, int passes, int warmups);

/// All runs of several timings of one pass; the timeline is that of the timing with the median nearest theirs.
Timing merge(std::vector<Timing> timings);

/// Of values in any order, at least one.
double median(std::vector<double> values);

}  // namespace distattn::cli
