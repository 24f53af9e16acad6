#pragma once
/// The rows of `bench`: schedules × shapes × ranks, run, timed and compared.

#include <vector>

#include "bench_rounds.hpp"
#include "launch_options.hpp"
#include "output.hpp"
#include "peaks.hpp"
#include "problem_options.hpp"
#include "schedule_options.hpp"

namespace distattn::cli {

struct BenchRequest {
  ProblemOptions problem;
  ScheduleOptions schedule;
  LaunchOptions launch;
  int runs = 10, warmups = 2;
  bool backward = false, check = false;
  std::optional<Calibration> calibration;  ///< goes on beside the runs of every row
};

/// An object for each pass of each schedule, in the order of the options: lengths, then ranks, then schedules. What
/// does not apply or needs more than --memory is noted with the reason; throws Error(usage) where nothing is left.
std::vector<Json> bench_rows(const BenchRequest& request, Peaks& peaks);

}  // namespace distattn::cli
