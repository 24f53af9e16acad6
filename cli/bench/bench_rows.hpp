#pragma once
/// The rows of `bench`: schedules × shapes × ranks, run, timed and compared.

#include <vector>

#include "cli/bench/bench_rounds.hpp"
#include "cli/bench/peaks.hpp"
#include "cli/options/launch_options.hpp"
#include "cli/options/problem_lists.hpp"
#include "cli/options/schedule_options.hpp"
#include "cli/rows/bench.hpp"

namespace distattn::cli {

struct BenchRequest {
  ProblemLists problem;
  ScheduleOptions schedule;
  ComputeOptions launch;
  int runs = 10, warmups = 2;
  bool backward = false, check = false, calibrate = false;
  std::optional<Calibration> calibration;  ///< goes on beside the runs of every row
};

/// A row for each pass of each schedule, in the order of the options: modes, shapes, then ranks, then schedules.
/// What does not apply or needs more than --memory is noted with the reason; throws Error(usage) where nothing is left.
/// All ranks of `launched` call it and return the same rows.
std::vector<BenchRow> bench_rows(World& launched, const BenchRequest& request, Peaks& peaks);

/// What must be the same on all ranks for them to measure the same rows. Throws as bench_rows for shapes.
std::string command_text(const BenchRequest& request);

}  // namespace distattn::cli
