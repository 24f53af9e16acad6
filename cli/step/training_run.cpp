#include "cli/step/training_run.hpp"

#include <algorithm>
#include <numeric>

#include "cli/step/work.hpp"
#include "distattn/index.hpp"
#include "distattn/registry.hpp"
#include "kernels/dense/blas.hpp"

namespace distattn::step {
namespace {

GradientError verify_step(const TrainingRun& run, const TokenSource& tokens, const Trainer& trainer, int step,
                          int threads) {
  std::vector<std::int64_t> positions(index(run.problem.seq_q));
  std::iota(positions.begin(), positions.end(), 0);
  const StepGradients exact =
      unsharded_step(run.shape, run.problem, trainer.values(), tokens.batch(step, positions), threads);
  return compare_gradients(trainer.parameters(), trainer.gradients(), exact.values);
}

void train_rank(const TrainingRun& run, const TokenSource& tokens, Trainer& trainer, Rank rank, int local_ranks,
                const StepSink& on_step) {
  for (int step = 0; step < run.steps; ++step) {
    std::optional<GradientError> error;
    const auto inspect = [&] {
      if (rank == 0 && run.verify == Verify::yes)
        error = verify_step(run, tokens, trainer, step, run.device.threads * local_ranks);
    };
    const StepReport report = trainer.run_step(inspect);
    if (rank == 0) on_step(report, error);
  }
}

/// Of the fullest rank's tokens.
ActivationBytes rank_activations(const TrainingRun& run) {
  const auto tokens = static_cast<double>(most_tokens(run.plan->outline(Pass::forward).sharding));
  return activation_bytes(run.shape, *run.policy, tokens, sizeof(float));
}

/// Weights, gradients, activations and results of the attention in float64.
double unsharded_bytes(const TrainingRun& run) {
  const auto tokens = static_cast<double>(run.problem.seq_q);
  const double attention = 2 * static_cast<double>(run.shape.hidden + run.shape.kv_width()) + run.shape.heads;
  return 2 * sizeof(double) * parameter_count(run.shape) + sizeof(double) * tokens * attention +
         activation_bytes(run.shape, checkpoint_policy("none"), tokens, sizeof(double)).compute;
}

}  // namespace

double rank_bytes(const TrainingRun& run) {
  const std::int64_t buffers =
      memory_side_by_side({&run.plan->counts(Pass::forward), &run.plan->counts(Pass::backward)});
  const ActivationBytes activations = rank_activations(run);
  return state_bytes_per_parameter * parameter_count(run.shape) + activations.compute + activations.host +
         static_cast<double>(buffers);
}

double node_bytes(const TrainingRun& run, int ranks) {
  const double exact = run.verify == Verify::yes ? unsharded_bytes(run) : 0;
  return ranks * rank_bytes(run) + exact;
}

std::string blas_name() { return kernels::dense::blas_name(); }
std::string blas_file() { return kernels::dense::blas_file(); }
void load_blas(int callers) { kernels::dense::load_blas(callers); }

void run_training(World& world, const TrainingRun& run, const TokenSource& tokens, const StepSink& on_step) {
  world.run([&](Rank rank, Transport& transport, Bootstrap& bootstrap) {
    DeviceOptions of_rank = run.device;
    of_rank.local_ranks = bootstrap.local_size();
    of_rank.local_rank = bootstrap.local_rank();
    const auto device = make_device(run.backend, of_rank);
    Attention attention(run.plan, *device, transport);
    Trainer trainer(run.shape, *run.policy, tokens, run.seed, attention, bootstrap);
    train_rank(run, tokens, trainer, rank, world.local_size(), on_step);
  });
}

}  // namespace distattn::step
