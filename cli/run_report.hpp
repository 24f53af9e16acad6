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
  const Prepared& prepared;
  const RunOptions& options;
  const RunResult& result;
  const Predictions& predictions;
  std::optional<Errors> errors;
};

/// The fields that every check reads, and the backward pass's own under "backward".
Json json_of(const RunReport& report);
std::string text_of(const RunReport& report);

}  // namespace distattn::cli
