#include "cli/step/training_run.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "cli/step/work.hpp"
#include "distattn/registry.hpp"
#include "distattn/words.hpp"

namespace distattn::step {
namespace {

GradientError verify_step(const TrainingRun& run, const TokenSource& tokens, const Trainer& trainer, int step,
                          int threads) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(run.problem.seq_q));
  std::iota(positions.begin(), positions.end(), 0);
  const StepGradients exact =
      unsharded_step(run.shape, run.problem.mask, trainer.values(), tokens.batch(step, positions), threads);
  return compare_gradients(trainer.parameters(), trainer.gradients(), exact.values);
}

void check_memory(const TrainingRun& run, const AttentionPlan& plan) {
  if (!run.memory_bytes) return;
  const double tokens = std::ceil(static_cast<double>(run.problem.seq_q) / plan.ranks());
  const double state = 4.0 * sizeof(float) * static_cast<double>(parameter_count(parameters_of(run.shape)));
  const auto fullest = [&](Pass pass) {
    const auto& bytes = plan.counts(pass).memory_bytes;
    return static_cast<double>(*std::max_element(bytes.begin(), bytes.end()));
  };
  const double needed = state + activation_bytes(run.shape, *run.policy, tokens, sizeof(float)).compute +
                        fullest(Pass::forward) + fullest(Pass::backward);
  if (needed <= static_cast<double>(*run.memory_bytes)) return;
  refuse("a step needs " + bytes_in_words(needed) + " a rank (--memory allows " +
         bytes_in_words(static_cast<double>(*run.memory_bytes)) + ") use more ranks, or keep less with --checkpoint");
}

void train_rank(const TrainingRun& run, const TokenSource& tokens, Trainer& trainer, Rank rank, int local_ranks,
                const StepSink& on_step) {
  for (int step = 0; step < run.steps; ++step) {
    std::optional<GradientError> error;
    const auto inspect = [&] {
      if (rank == 0 && run.verify == Verify::yes)
        error = verify_step(run, tokens, trainer, step, run.threads * local_ranks);
    };
    const StepReport report = trainer.run_step(inspect);
    if (rank == 0) on_step(report, error);
  }
}

}  // namespace

void run_training(World& world, const TrainingRun& run, const TokenSource& tokens, const StepSink& on_step) {
  const auto plan = std::make_shared<const AttentionPlan>(run.problem, world.size(), run.attention);
  check_memory(run, *plan);
  world.run([&](Rank rank, Transport& transport, Bootstrap& bootstrap) {
    const auto device = make_device(run.backend, {.threads = run.threads,
                                                  .local_ranks = bootstrap.local_size(),
                                                  .local_rank = bootstrap.local_rank(),
                                                  .gradient_order = run.gradient_order});
    Attention attention(plan, *device, transport);
    Trainer trainer(run.shape, *run.policy, tokens, run.seed, attention, bootstrap);
    train_rank(run, tokens, trainer, rank, world.local_size(), on_step);
  });
}

}  // namespace distattn::step
