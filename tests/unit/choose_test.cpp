#include "distattn/choose.hpp"

#include <algorithm>

#include "distattn/error.hpp"

#include "catch.hpp"

using namespace distattn;

namespace {

Problem problem_of(std::int64_t seq, int heads, int kv_heads) {
  Problem problem;
  problem.seq_q = problem.seq_kv = seq;
  problem.heads = heads;
  problem.kv_heads = kv_heads;
  problem.head_dim = problem.value_dim = 64;
  problem.mask = causal_mask();
  return problem;
}

Counts counts_of(const std::string& name, const Problem& problem, int ranks) {
  const auto recipe = std::get<Recipe>(resolve_schedule(name, problem, ranks));
  const auto tiles = std::make_shared<const Tiles>(shard(problem, ranks, recipe.layout, recipe.groups));
  return plan_pass(recipe, tiles, Pass::forward, recipe.mode, {}).report.counts;
}

std::int64_t largest(const std::vector<std::int64_t>& values) {
  return *std::max_element(values.begin(), values.end());
}

}  // namespace

TEST_CASE("auto sends the fewest bytes") {
  const Problem problem = problem_of(4096, 32, 32);
  const std::string chosen = choose_schedule(problem, 8, {}, Passes::forward);
  for (const std::string& name : all_schedule_names(problem, 8)) {
    INFO(name << " against " << chosen);
    CHECK(largest(counts_of(chosen, problem, 8).bytes_sent) <= largest(counts_of(name, problem, 8).bytes_sent));
  }
}

TEST_CASE("auto breaks ties by name") {
  // One rank sends nothing, whatever the schedule.
  CHECK(choose_schedule(problem_of(64, 4, 4), 1, {}, Passes::both) == "allgather");
}

TEST_CASE("auto stays within the memory of a rank") {
  Problem problem = problem_of(4096, 32, 32);
  problem.dtype = DType::bf16;  // its fp32 replies make the fewest bytes cost memory
  const std::string roomy = choose_schedule(problem, 8, {}, Passes::forward);
  const std::int64_t memory = largest(counts_of(roomy, problem, 8).memory_bytes);
  const std::string tight = choose_schedule(problem, 8, {}, Passes::forward, memory - 1);
  CHECK(largest(counts_of(tight, problem, 8).memory_bytes) < memory);
  CHECK_THROWS_AS(choose_schedule(problem, 8, {}, Passes::forward, 1), Error);
}
