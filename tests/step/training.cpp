#include "tests/step/training.hpp"

#include "distattn/inproc.hpp"
#include "distattn/registry.hpp"

namespace distattn::test {

using namespace step;

Training train(const TrainingRun& run, const TokenSource& tokens) {
  ScheduleRequest options;
  options.schedule = run.schedule;
  options.passes = Passes::both;
  const Problem problem = attention_problem(run.shape, run.sequence, causal_mask());
  const auto plan = std::make_shared<const AttentionPlan>(problem, run.ranks, options);
  std::vector<Training> by_rank(static_cast<std::size_t>(run.ranks));
  std::vector<std::vector<float>> values(by_rank.size());

  run_ranks(run.ranks, [&](Rank rank, Transport& transport, Bootstrap& bootstrap) {
    const auto device = make_device(run.backend, {.threads = 1, .local_ranks = run.ranks});
    Attention attention(plan, *device, transport);
    Trainer trainer(run.shape, checkpoint_policy(run.policy), tokens, run.seed, attention, bootstrap);
    Training& mine = by_rank[static_cast<std::size_t>(rank)];
    for (int step = 0; step < run.steps; ++step) {
      mine.steps.push_back(trainer.run_step([&] {
        mine.gradients.assign(trainer.gradients().begin(), trainer.gradients().end());
        mine.values_before.assign(trainer.values().begin(), trainer.values().end());
      }));
    }
    values[static_cast<std::size_t>(rank)].assign(trainer.values().begin(), trainer.values().end());
  });
  for (std::size_t rank = 1; rank < by_rank.size(); ++rank) {
    if (by_rank[rank].gradients != by_rank[0].gradients || values[rank] != values[0]) {
      throw Error(ErrorKind::peer, "rank " + std::to_string(rank) + " has other gradients or parameters than rank 0");
    }
  }
  return by_rank[0];
}

}  // namespace distattn::test
