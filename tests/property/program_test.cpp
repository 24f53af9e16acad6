/// Random problems, tables, routes and modes: every program that lower() makes is proved, reads back from its JSON, and
/// takes no longer for overlapping what it could do one after the other.

#include <memory>

#include "catch.hpp"
#include "distattn/lower.hpp"
#include "distattn/simulate.hpp"
#include "distattn/verify.hpp"
#include "support/problems.hpp"
#include "support/sanitized.hpp"

using namespace distattn;
using test::Random;
using test::random_problem;
using test::recipes_for;

namespace {

Routes random_routes(Random& random) {
  if (random.one_in(2)) return {};
  return {static_cast<int>(random.between(1, 7)), static_cast<int>(random.between(0, 5))};
}

/// Nodes of several sizes, links from much slower than arithmetic to much faster.
Machine random_machine(Random& random, int ranks) {
  const auto power_of_ten = [&](int least, int most) {
    double value = 1;
    for (std::int64_t n = random.between(least, most); n != 0; n -= n > 0 ? 1 : -1) value *= n > 0 ? 10 : 0.1;
    return value;
  };
  Machine machine;
  machine.ranks_per_node = static_cast<int>(random.between(1, 8));
  machine.nodes = (ranks + machine.ranks_per_node - 1) / machine.ranks_per_node;
  machine.near = {power_of_ten(6, 12), power_of_ten(-9, -3)};
  machine.far = {power_of_ten(6, 12), power_of_ten(-9, -3)};
  machine.far_owner = random.pick({LinkOwner::rank, LinkOwner::node});
  const RateCurve rate{{{0, 1e10}}};
  for (auto& of_type : machine.rates) of_type = {KernelRates{rate, rate}, KernelRates{rate, rate}};
  return machine;
}

double simulated_seconds(const Lowering& lowering, const Schedule& schedule, const Machine& machine) {
  std::vector<ProgramSketch> sketches;
  for (Rank rank = 0; rank < lowering.tiles().ranks(); ++rank) {
    sketches.push_back(
        sketch(lowering.outline(), lowering.tiles(), rank, schedule.ranks[static_cast<std::size_t>(rank)]));
  }
  const double idle = ideal_idle(sketches);
  REQUIRE(idle >= 0);
  REQUIRE(idle <= 1);
  return simulate(lowering.outline(), sketches, machine).seconds;
}

}  // namespace

TEST_CASE("every schedule lowers to programs that are proved, whatever the mask, the routes and the mode") {
  INFO("seed " << test::seed());
  Random random(test::seed());
  for (int n = 0; n < (is_sanitized ? 8 : 30); ++n) {
    Problem problem = random_problem(random);
    problem.batch = random.between(1, 2);
    problem.value_dim = random.pick({8, 16});
    problem.dtype = random.pick({DType::fp32, DType::bf16});
    problem.wire = random.pick({DType::fp32, DType::bf16});
    const int ranks = static_cast<int>(random.between(1, 12));
    const Machine machine = random_machine(random, ranks);
    for (const Recipe& recipe : recipes_for(problem, ranks, random)) {
      const auto tiles = std::make_shared<const Tiles>(shard(problem, ranks, recipe.layout, recipe.groups));
      const Pass pass = random.pick({Pass::forward, Pass::backward});
      const Routes routes = random_routes(random);
      INFO("case " << n << ": " << recipe.name << " " << name_of(pass) << " on " << ranks << " ranks, "
                   << routes.node_size << " a node, ahead " << routes.ahead);
      const auto seconds_of = [&](Mode mode) {
        INFO(name_of(mode));
        const Lowering lowering(recipe.name, tiles, recipe.table(tiles, routes.node_size), pass, mode, routes);
        const Schedule schedule = lower(lowering);
        const VerifyReport report = verify(schedule);
        for (const Finding& finding : report.findings) UNSCOPED_INFO(finding.message);
        REQUIRE(report.proved());
        if (mode == Mode::overlapped) {
          const std::string text = to_json(schedule);
          REQUIRE(to_json(schedule_from_json(text)) == text);
        }
        return simulated_seconds(lowering, schedule, machine);
      };
      REQUIRE(seconds_of(Mode::gathered) >= 0);
      REQUIRE(seconds_of(Mode::overlapped) <= seconds_of(Mode::serial) * (1 + 1e-9));
    }
  }
}
