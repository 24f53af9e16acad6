#pragma once
/// Training runs on ranks that are threads.

#include <string>
#include <vector>

#include "cli/step/model.hpp"
#include "cli/step/tokens.hpp"
#include "cli/step/trainer.hpp"

namespace distattn::test {

struct TrainingRun {
  step::ModelShape shape;
  std::int64_t sequence = 0;
  int ranks = 1, steps = 1;
  std::string policy = "none", schedule = "balanced", backend = "reference";
  std::uint64_t seed = 1;
};

struct Training {
  std::vector<step::StepReport> steps;
  std::vector<float> gradients;      ///< of the last step, the same on all ranks
  std::vector<float> values_before;  ///< parameters that the last step began with
};

/// Requires all ranks to end with the same gradients and parameters.
Training train(const TrainingRun& run, const step::TokenSource& tokens);

}  // namespace distattn::test
