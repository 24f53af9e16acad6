#pragma once
/// Prediction beside measurement: what a run would have taken, and both as pictures.

#include <filesystem>
#include <optional>

#include "distattn/machine.hpp"
#include "prepared.hpp"
#include "sharded_run.hpp"

namespace distattn::cli {

/// Predicted timelines; nothing where the machine states no rates for the element type.
struct Predictions {
  std::string machine;
  std::optional<Timeline> forward, backward;

  const std::optional<Timeline>& of(Pass pass) const { return pass == Pass::forward ? forward : backward; }
};

Predictions predict(const AttentionPlan& plan, const Machine& machine, int threads);

/// Writes the passes' timelines, predicted above measured. Throws Error(environment) where it cannot.
void write_svg(const std::filesystem::path& path, const AttentionPlan& plan, const Predictions& predictions,
               const RunResult& result);
/// The same as trace events.
void write_trace(const std::filesystem::path& path, const AttentionPlan& plan, const Predictions& predictions,
                 const RunResult& result);

}  // namespace distattn::cli
