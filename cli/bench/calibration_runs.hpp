#pragma once
/// Attentions that a calibration runs and reads the timelines of.

#include <memory>
#include <string>
#include <vector>

#include "cli/bench/calibration.hpp"
#include "cli/run/prepared.hpp"
#include "cli/run/sharded_run.hpp"

namespace distattn::cli {

Problem problem_of(const CalibrationOptions& options, DType dtype, std::int64_t tokens,
                   Coverage coverage = Coverage::partial);
RunOptions run_options(const CalibrationOptions& options, int runs);

struct Measured {
  std::shared_ptr<const AttentionPlan> plan;
  RunResult result;

  /// Every step of `lane` of a pass: calls each(rank, step, seconds).
  template <class Each>
  void for_each_step(Pass pass, Lane lane, Each each) const {
    const Timeline& timeline = (pass == Pass::forward ? result.forward : result.backward).timeline;
    for (const Span& span : timeline.spans) {
      if (span.lane == lane) each(span.rank, span.step, span.end_s - span.start_s);
    }
  }
};

/// Random values through what is asked for, after one warm-up, each rank with one thread. Collective.
Measured measure(World& world, const CalibrationOptions& options, const Problem& problem,
                 const ScheduleRequest& request, int runs = 1);
/// The same through a schedule. Collective.
Measured measure(World& world, const CalibrationOptions& options, const Problem& problem, const std::string& schedule,
                 Passes passes, int runs = 1);
/// The same on threads of this process.
Measured measure(const CalibrationOptions& options, const Problem& problem, const std::string& schedule, int ranks,
                 Passes passes, int runs = 1);

/// Where other processes measure at the same time: waits until all do. Collective.
void line_up(const CalibrationOptions& options);
/// What all of them measured, by rank. Collective.
std::vector<double> of_all(const CalibrationOptions& options, double mine);
double mean_of(const std::vector<double>& values);

}  // namespace distattn::cli
