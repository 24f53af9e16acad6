/// Schedules over devices of Kokkos's spaces, with and without what scores of models have beside a scale: copies
/// between ranks in the space's memory, and exchanges through that of the host.

#include "catch.hpp"
#include "cli/tools/tolerance.hpp"
#include "distattn/features.hpp"
#include "tests/conformance/device_world.hpp"
#include "tests/support/one_memory.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/sharded.hpp"

namespace distattn::test {
namespace {

constexpr std::uint64_t seed = 91;

Problem problem_with(DType dtype, std::initializer_list<Feature> features) {
  Problem problem = uneven_problem();
  problem.batch = 2;
  problem.dtype = dtype;
  problem.seq_q = problem.seq_kv = 75;
  for (const Feature feature : features) ask_for(feature, problem);
  return problem;
}

void check(const DeviceKind& kind, const Problem& problem, const char* schedule, int ranks, bool is_staged) {
  CAPTURE(kind.name, schedule, ranks, is_staged, names_of(features_of(problem)));
  ShardedRun run;
  run.make = kind.make;
  run.options.schedule = schedule;
  run.options.passes = Passes::both;
  run.ranks = ranks;
  run.runs = 2;
  if (is_staged) {
    run.world = [](int count, const std::function<void(Rank, Transport&)>& body) {
      run_ranks(count, [&](Rank rank, Transport& transport) {
        OneMemory through_host(transport);
        body(rank, through_host);
      });
    };
  }
  const Inputs inputs(problem, seed);
  CHECK(largest_error(run_sharded(inputs, run), exact_of(inputs)) <= tolerance(problem, 4 * ranks));
}

}  // namespace

TEST_CASE("Ranks on a space give what float64 gives, in schedules of every kind and with every feature") {
  for (const DeviceKind& kind : device_world()) {
    const std::vector<Problem> problems{
        problem_with(kind.dtype,
                     {Feature::softcap, Feature::sink_logits, Feature::alibi, Feature::max_logit, Feature::dropout}),
        problem_with(kind.dtype, {}),
        problem_with(kind.dtype, {Feature::alibi}),
        problem_with(kind.dtype, {Feature::dropout, Feature::max_logit}),
    };
    for (const Problem& problem : cases_to_run(problems)) {
      for (const bool is_staged : {false, true}) {
        check(kind, problem, "zigzag-ring/burst:zigzag", 3, is_staged);
        check(kind, problem, "attention2d", 4, is_staged);
        check(kind, problem, "ulysses", 2, is_staged);
      }
    }
  }
}

}  // namespace distattn::test
