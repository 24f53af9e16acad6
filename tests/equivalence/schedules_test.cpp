/// Schedules × masks × ranks, forward and backward, run by ranks that are threads and compared with float64.

#include "catch.hpp"
#include "distattn/registry.hpp"
#include "distattn/table.hpp"
#include "distattn/tolerance.hpp"
#include "tests/support/sharded.hpp"

using namespace distattn;
using test::Inputs;
using test::run_sharded;
using test::ShardedRun;

namespace {

constexpr std::uint64_t seed = 20;

Problem small_problem(std::int64_t seq_q, std::int64_t seq_kv, int heads, int kv_heads) {
  Problem problem;
  problem.seq_q = seq_q;
  problem.seq_kv = seq_kv;
  problem.heads = heads;
  problem.kv_heads = kv_heads;
  problem.head_dim = problem.value_dim = 8;
  return problem;
}

std::vector<Mask> masks(std::int64_t tokens) {
  std::vector<Mask> all{causal_mask(), full_mask(), prefix_mask(tokens, 17), block_causal_mask(tokens, 8)};
  const auto add = [&](const char* name, bool causal, std::int64_t left, std::int64_t right, std::int64_t sinks,
                       std::vector<std::int64_t> documents) {
    Mask mask = causal ? causal_mask() : full_mask();
    mask.name = name;
    mask.left = left;
    mask.right = right;
    mask.sinks = sinks;
    mask.documents = std::move(documents);
    all.push_back(mask);
  };
  add("window", true, 9, -1, 0, {});
  add("window and sinks", true, 5, -1, 3, {});
  add("both windows", false, 4, 7, 0, {});
  add("documents", true, -1, -1, 0, {0, 11, 12, 37, tokens});
  return all;
}

/// How many schedules were run; every one that applies must agree with float64.
int check_all(const Problem& problem, int ranks, ShardedRun run) {
  const Inputs inputs(problem, seed);
  const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
  run.ranks = ranks;
  run.options.backward = true;
  int count = 0;
  for (const std::string& name : all_schedule_names(problem, ranks)) {
    if (!std::holds_alternative<Recipe>(resolve_schedule(name, problem, ranks))) continue;
    run.options.schedule = name;
    CAPTURE(name, ranks, problem.mask.name, problem.heads, problem.kv_heads, name_of(problem.dtype), run.backend);
    CHECK(test::largest_error(run_sharded(inputs, run), exact) <= tolerance(problem, 4 * ranks));
    ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("every schedule agrees with float64 under every mask") {
  for (const int ranks : {1, 2, 3, 4, 6, 8}) {
    for (const Mask& mask : masks(53)) {
      Problem problem = small_problem(53, 53, 4, 2);
      problem.mask = mask;
      CHECK(check_all(problem, ranks, {}) >= 5);
    }
  }
}
