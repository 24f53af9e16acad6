#pragma once
/// The runs of one row, and what they are predicted to take.

#include <optional>

#include "cli/bench/calibration.hpp"
#include "cli/run/run_pictures.hpp"
#include "cli/run/sharded_run.hpp"

namespace distattn::cli {

/// A calibration of this machine that goes on while rows are measured, over one world of ranks.
struct Calibration {
  CalibrationOptions options;
  Measurements measurements;
};

/// What one row runs, and on whose ranks.
struct RowRun {
  World& world;
  const SharedPlan& plan;
  const Inputs& inputs;
  const RunOptions& options;
  const ScheduleOptions& schedule;
};

struct Rounds {
  RunResult result;
  Predictions predictions;
  PerPass<double> ratios{};  ///< measured / predicted; NaN if nothing is predicted
};

/// Runs as run_sharded does and predicts it on `machine`. Collective, as is the other.
Rounds measure_once(const RowRun& row, const Machine& machine);

/// Runs in rounds of two, and calibrates the tiles of the row again before and after each: a machine that others share
/// changes its speed from second to second. A ratio is the median over rounds of a round's median to its prediction
/// from the samples around it; the predictions are from all samples. Rounds after the first are warmed up once at most.
Rounds measure_calibrated(const RowRun& row, const Calibration& calibration);

}  // namespace distattn::cli
