/// What scores of models have beside a scale, on the CUDA device: against float64, in schedules of every kind.

#include "backends/cuda/device.hpp"
#include "simt/device_case.hpp"
#include "support/sanitized.hpp"

namespace {

using namespace distattn;
using namespace simt;

/// Masks and heads have something of everything.
Problem problem_with(DType dtype, std::initializer_list<Feature> features) {
  Problem problem = problem_of(dtype, 45, 4, 2, 24, 16);
  problem.batch = 2;
  problem.mask.left = 15;
  problem.mask.sinks = 2;
  problem.mask.documents = {0, 19, 20, 45};
  problem.mask.name = "window, first keys and documents";
  for (const Feature feature : features) ask_for(feature, problem);
  return problem;
}

const std::vector<std::pair<const char*, int>> schedules{
    {"ring", 1}, {"zigzag-ring/burst:zigzag", 2}, {"striped-ring", 3}, {"mesh:2x1x2", 4}, {"ulysses", 2}};

/// Everywhere the same problem.
void check_schedules(const Problem& problem) {
  for (const auto& [schedule, ranks] : cases_to_run(schedules)) {
    INFO(names_of(features_of(problem)));
    check(problem, run_of(schedule, ranks));
  }
}

}  // namespace

TEST_CASE("caps, biases, largest scores and dropout, alone and together", "[simt]") {
  for (const Feature feature :
       cases_to_run<Feature>({Feature::softcap, Feature::alibi, Feature::max_logit, Feature::dropout})) {
    check(problem_with(DType::fp32, {feature}), run_of("zigzag-ring/burst:zigzag", 2));
  }
  check_schedules(problem_with(
      DType::fp32, {Feature::softcap, Feature::sink_logits, Feature::alibi, Feature::max_logit, Feature::dropout}));
  const Problem problem = problem_with(
      DType::bf16, {Feature::softcap, Feature::sink_logits, Feature::alibi, Feature::max_logit, Feature::dropout});
  for (const int architecture : {80, 90}) check(problem, run_of("zigzag-ring", 2), architecture);
}

TEST_CASE("dropout of a program that was recorded is that of the call", "[simt][again]") {
  asked.gpu.step_graphs = StepGraphs::always;
  test::ShardedRun run = run_of("zigzag-ring/burst:zigzag", 2);
  run.runs = 2;
  check(problem_with(DType::bf16, {Feature::dropout}), run);
  CHECK(gpu->graphs() > 0);
  asked.gpu.step_graphs = StepGraphs::never;
}

TEST_CASE("sink logits", "[simt]") {
  check_schedules(problem_with(DType::fp32, {Feature::sink_logits}));
  const Problem problem = problem_with(DType::bf16, {Feature::sink_logits});
  check(problem, run_of("zigzag-ring", 2), 90);
  // Rows that see no key have the sink alone.
  Problem unseen = problem_of(DType::fp32, 21, 2, 1, 16, 24);
  unseen.seq_q = 30;
  ask_for(Feature::sink_logits, unseen);
  test::ShardedRun run = run_of("ring", 2);
  run.runs = 2;
  check(unseen, run);
}
