#pragma once
/// What `run` says about a finished run.

#include <optional>
#include <string>

#include "cli/rows/run.hpp"
#include "cli/run/check.hpp"
#include "cli/run/prepared.hpp"
#include "cli/run/run_pictures.hpp"
#include "cli/run/sharded_run.hpp"

namespace distattn::cli {

struct RunReport {
  const World& world;
  const AttentionPlan& plan;
  const RunOptions& options;
  const RunResult& result;
  const Predictions& predictions;
  std::optional<Errors> errors;

  const Timing& timing(Pass pass) const { return pass == Pass::forward ? result.forward : result.backward; }
};

PassRow row_of(const RunReport& report, Pass pass);
RunRow row_of(const RunReport& report);
std::string text_of(const RunReport& report);

}  // namespace distattn::cli
