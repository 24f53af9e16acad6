#pragma once
/// A whole training run.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "cli/step/trainer.hpp"
#include "cli/step/unsharded.hpp"
#include "distattn/attention.hpp"
#include "distattn/launch.hpp"
#include "distattn/registry.hpp"

namespace distattn::step {

/// Whether every step's gradients are compared with the unsharded float64 step.
enum class Verify : bool { no, yes };

struct TrainingRun {
  ModelShape shape;
  Problem problem;  ///< attention_problem() of the shape, with the mask
  const CheckpointPolicy* policy = nullptr;
  AttentionOptions attention;
  std::string backend;
  GradientOrder gradient_order = GradientOrder::any;
  int threads = 1;  ///< of a rank's attention
  int steps = 1;
  std::uint64_t seed = 0;
  Verify verify = Verify::no;
  std::optional<std::int64_t> memory_bytes;  ///< most that a rank may use
};

/// A step's report and, where it was verified, its gradients' error.
using StepSink = std::function<void(const StepReport& report, const std::optional<GradientError>& error)>;

/// Calls `on_step` after each step, on the thread of rank 0. Throws what the first rank to fail threw, and Error(usage)
/// before anything runs where weights, activations and attention buffers need more than the run may use. Collective.
void run_training(World& world, const TrainingRun& run, const TokenSource& tokens, const StepSink& on_step);

/// Largest relative error of a parameter's gradient that a sharded step in fp32 may have.
inline constexpr double gradient_tolerance = 1e-5;

}  // namespace distattn::step
