#pragma once
/// A whole training run.

#include <cstdint>
#include <functional>
#include <memory>
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
  std::shared_ptr<const AttentionPlan> plan;  ///< of the problem
  std::string backend;
  DeviceOptions device = {.threads = 1};  ///< of every rank's attention; its place is filled in
  int steps = 1;
  std::uint64_t seed = 0;
  Verify verify = Verify::no;
};

/// Bytes of the rank that needs most: weights, gradients and moments, activations, attention buffers. The layers are
/// computed in host memory, so that what is kept there counts.
double rank_bytes(const TrainingRun& run);
/// Bytes of `ranks` ranks on one node, with what the exact step needs.
double node_bytes(const TrainingRun& run, int ranks);

/// A step's report and, where it was verified, its gradients' error.
using StepSink = std::function<void(const StepReport& report, const std::optional<GradientError>& error)>;

/// Calls `on_step` after each step, on the thread of rank 0. Throws what the first rank to fail threw. Collective.
void run_training(World& world, const TrainingRun& run, const TokenSource& tokens, const StepSink& on_step);

/// Largest relative error of a parameter's gradient that a sharded step in fp32 may have.
inline constexpr double gradient_tolerance = 1e-5;

/// The BLAS of these steps, which is loaded for nothing else; what kernels/dense/blas.hpp says. load_blas() before
/// ranks meet: transports have threads that read the environment.
std::string blas_name();
std::string blas_file();
void load_blas(int callers);

}  // namespace distattn::step
