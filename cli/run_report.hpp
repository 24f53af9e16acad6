#pragma once
/// What `run` says about a finished run: the JSON object and the text.

#include <optional>
#include <string>

#include "check.hpp"
#include "prepared.hpp"
#include "run_pictures.hpp"
#include "sharded_run.hpp"

namespace distattn::cli {

struct RunReport {
  const World& world;
  const Prepared& prepared;
  const RunOptions& options;
  const RunResult& result;
  const Predictions& predictions;
  std::optional<Errors> errors;
};

/// One pass of a run: its proof's counts and how long it took.
struct PassReport {
  const AttentionPlan& plan;
  Pass pass;
  const Timing& timing;
  const std::optional<Timeline>& predicted;

  /// NaN where nothing is predicted.
  double predicted_s() const;
  const Counts& counts() const { return plan.counts(pass); }
  /// Forward 2·pairs·(d + dv) for each head, backward 2.5 times that.
  double flops() const;
  double gflops() const { return flops() / timing.median_s / 1e9; }
};

PassReport pass_of(const RunReport& report, Pass pass);

/// Puts a pass's mode, counts, times and rate into `json`.
void add_pass(const PassReport& pass, Json& json);

/// The fields that every check reads, and the backward pass's own under "backward".
Json json_of(const RunReport& report);
std::string text_of(const RunReport& report);

}  // namespace distattn::cli
