#include "distattn/choose.hpp"

#include <algorithm>

#include "catch.hpp"
#include "core/src/format.hpp"
#include "distattn/error.hpp"
#include "distattn/plan.hpp"

using namespace distattn;

namespace {

Problem problem_of(std::int64_t seq, int heads, int kv_heads) {
  Problem problem;
  problem.seq_q = problem.seq_kv = seq;
  problem.heads = heads;
  problem.kv_heads = kv_heads;
  problem.head_dim = problem.value_dim = 64;
  problem.dtype = DType::bf16;
  problem.mask = causal_mask();
  return problem;
}

ScheduleRequest limits_of(Passes passes, int node_size = 0, std::optional<int> ahead = 0) {
  return {"auto", passes, {}, node_size, ahead};
}

std::vector<Choice> ranked(const Problem& problem, int ranks, const Machine& machine, const ScheduleRequest& limits) {
  return or_refuse(rank_schedules(problem, ranks, machine, limits));
}

Choice best(const Problem& problem, int ranks, const Machine& machine, const ScheduleRequest& limits) {
  return ranked(problem, ranks, machine, limits).front();
}

struct Cost {
  double seconds = 0;
  std::int64_t memory_bytes = 0;
};

Cost cost_of(const AttentionPlan& planned, const Machine& machine) {
  Cost cost{0, planned.memory_bytes()};
  for (const PassPlan& pass : predict(planned, &machine)) cost.seconds += pass.predicted_s;
  return cost;
}

/// What predict() says of "F" or "F/B".
Cost cost_of(const std::string& name, const Problem& problem, int ranks, const Machine& machine, Routes routes,
             Passes passes) {
  return cost_of(or_refuse(plan(problem, ranks, {name, passes, {}, routes.node_size, routes.ahead})), machine);
}

/// The same of what was chosen.
Cost cost_of(const Choice& choice, const Problem& problem, int ranks, const Machine& machine, Passes passes) {
  return cost_of(or_refuse(plan(problem, ranks, with_choice({"auto", passes}, choice))), machine);
}

}  // namespace

TEST_CASE("auto is at least as fast as every named schedule, and predicts what plan predicts", "[choose]") {
  const std::string name = GENERATE("dgx-a100x2", "ethernet-h100x64");
  const Passes passes = GENERATE(Passes::forward, Passes::both);
  const Machine machine = find_machine(name);
  const Problem problem = problem_of(16384, 32, 8);
  const auto ranking = ranked(problem, 8, machine, limits_of(passes));
  const Choice& chosen = ranking.front();
  const Cost cost = cost_of(chosen, problem, 8, machine, passes);
  CHECK(chosen.predicted_s == Approx(cost.seconds));
  CHECK(chosen.memory_bytes == cost.memory_bytes);
  for (const std::string& each : all_schedule_names(problem, 8)) {
    if (!std::holds_alternative<RecipePair>(resolve_pair(each, problem, 8))) continue;
    INFO(each << " against " << chosen.name);
    CHECK(chosen.predicted_s <= cost_of(each, problem, 8, machine, {}, passes).seconds + 1e-9);
  }
}

TEST_CASE("a ranking is in order, names each schedule once and repeats exactly", "[choose]") {
  const Machine machine = find_machine("dgx-a100x2");
  const Problem problem = problem_of(65536, 32, 32);
  const ScheduleRequest limits = limits_of(Passes::both, 8, std::nullopt);
  const auto ranking = ranked(problem, 16, machine, limits), again = ranked(problem, 16, machine, limits);
  REQUIRE(ranking.size() == again.size());
  REQUIRE(ranking.size() > 1);
  for (std::size_t i = 0; i < ranking.size(); ++i) {
    CHECK(ranking[i].name == again[i].name);
    CHECK(ranking[i].predicted_s == again[i].predicted_s);
    for (std::size_t j = 0; j < i; ++j) CHECK(ranking[j].name != ranking[i].name);
    if (i > 0) CHECK(ranking[i - 1].predicted_s <= ranking[i].predicted_s);
  }
}

TEST_CASE("posting messages early is chosen where it pays", "[choose]") {
  const Machine machine = find_machine("dgx-a100x2");
  const Problem problem = problem_of(32768, 32, 8);
  const Choice searched = best(problem, 16, machine, limits_of(Passes::forward, 8, std::nullopt));
  const Choice fixed = best(problem, 16, machine, limits_of(Passes::forward, 8, 0));
  CHECK(searched.routes.ahead > 0);
  CHECK(searched.predicted_s < fixed.predicted_s);
}

TEST_CASE("forward and backward are chosen apart, of one layout", "[choose]") {
  // With as many key heads as query heads, moving the queries costs a backward pass less than moving the keys.
  const Problem problem = problem_of(524288, 32, 32);
  const Choice chosen = best(problem, 64, find_machine("ethernet-h100x64"), limits_of(Passes::both, 1));
  INFO(chosen.name);
  REQUIRE(chosen.name.find('/') != std::string::npos);
  CHECK(std::holds_alternative<RecipePair>(resolve_pair(chosen.name, problem, 64)));
}

TEST_CASE("other meshes are tried where placements do not leave their layout far behind", "[choose]") {
  const Machine machine = find_machine("ethernet-h100x64");
  const auto has_other_mesh = [](const std::vector<Choice>& ranking) {
    return std::any_of(ranking.begin(), ranking.end(),
                       [](const Choice& choice) { return choice.name.find("mesh:2x2x2") != std::string::npos; });
  };
  Problem problem = problem_of(1 << 16, 8, 8);
  CHECK(has_other_mesh(ranked(problem, 8, machine, limits_of(Passes::forward))));

  for (std::int64_t end = 0; end < problem.seq_kv; end += 5000) problem.mask.documents.push_back(end);
  problem.mask.documents.push_back(problem.seq_kv);
  const std::vector<Choice> ranking = ranked(problem, 8, machine, limits_of(Passes::forward));
  CHECK(ranking.front().name == "placed");
  CHECK_FALSE(has_other_mesh(ranking));
  for (const char* layout : {"block", "zigzag", "striped", "chunked"}) {
    ScheduleRequest meshes = limits_of(Passes::forward);
    meshes.layout = layout;
    CHECK(ranking.front().predicted_s <= best(problem, 8, machine, meshes).predicted_s);
  }
}

TEST_CASE("auto breaks ties by name", "[choose]") {
  // One tile on one rank: every schedule takes the same time.
  Problem problem = problem_of(64, 1, 1);
  problem.mask = full_mask();
  const auto ranking = ranked(problem, 1, find_machine("dgx-a100x2"), limits_of(Passes::forward));
  REQUIRE(ranking[0].predicted_s == ranking[1].predicted_s);
  CHECK(ranking[0].name < ranking[1].name);
}

TEST_CASE("both passes' buffers stay within the memory of a rank together", "[choose]") {
  const Machine machine = find_machine("ethernet-h100x64");
  const Problem problem = problem_of(65536, 32, 32);
  ScheduleRequest limits = limits_of(Passes::both);
  const auto ranking = ranked(problem, 8, machine, limits);
  std::int64_t least = ranking.front().memory_bytes;
  for (const Choice& choice : ranking) least = std::min(least, choice.memory_bytes);
  for (const std::int64_t most : {ranking.front().memory_bytes - 1, least}) {
    limits.memory_bytes = most;
    const Choice chosen = best(problem, 8, machine, limits);
    INFO(chosen.name);
    CHECK(cost_of(chosen, problem, 8, machine, Passes::both).memory_bytes <= most);
  }
  limits.memory_bytes = best(problem, 8, machine, limits_of(Passes::forward)).memory_bytes;
  CHECK_THROWS_WITH(best(problem, 8, machine, limits), contains_text("no schedule fits "));
}

TEST_CASE("auto stays within the memory of a rank, or says what each schedule needs", "[choose]") {
  const Machine machine = find_machine("ethernet-h100x64");
  const Problem problem = problem_of(65536, 32, 32);
  ScheduleRequest limits = limits_of(Passes::forward);
  const auto ranking = ranked(problem, 8, machine, limits);
  const Choice roomy = ranking.front();
  const Choice named = *std::find_if(ranking.begin(), ranking.end(), [](const auto& c) { return !c.placement; });
  limits.memory_bytes = roomy.memory_bytes - 1;
  const Choice tight = best(problem, 8, machine, limits);
  CHECK(tight.memory_bytes < roomy.memory_bytes);
  CHECK(tight.predicted_s >= roomy.predicted_s);
  limits.memory_bytes = 1000;
  CHECK_THROWS_WITH(best(problem, 8, machine, limits),
                    contains_text("no schedule fits 1000 B") &&
                        contains_text(named.name + " " + format_bytes(static_cast<double>(named.memory_bytes))));
  Machine small = machine;
  small.memory_bytes = roomy.memory_bytes - 1;
  CHECK(best(problem, 8, small, limits_of(Passes::forward)).name == tight.name);
  small.memory_bytes = 1000;
  CHECK_THROWS_WITH(
      best(problem, 8, small, limits_of(Passes::forward)),
      contains_text("no schedule fits 1000 B a rank (what each of 8 ranks has on machine " + small.name + "; "));
}
