#include "distattn/plan.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "core/src/parallel.hpp"
#include "core/src/planner/described.hpp"
#include "core/src/planner/plan_fields.hpp"

namespace distattn {
namespace {

/// What a rank sends to other nodes of the machine, whether its routes know of nodes or not.
std::int64_t far_bytes(const ProgramSketch& sketch, const Machine& machine) {
  std::int64_t bytes = 0;
  for (const ProgramSketch::Message& message : sketch.sends) {
    if (machine.node_of(sketch.rank) != machine.node_of(message.peer)) bytes += message.bytes;
  }
  return bytes;
}

/// What is left of a schedule when its programs and messages have been looked at: millions of them at a thousand ranks.
struct Proved {
  Outline outline;
  VerifyReport report;
  std::vector<ProgramSketch> sketches;
};

Proved prove(const Lowering& lowering, const std::shared_ptr<const Tiles>& tiles, int block) {
  Verifier verifier(lowering.outline(), tiles);
  std::vector<ProgramSketch> sketches(static_cast<std::size_t>(tiles->ranks()));
  for_each_rank(tiles->ranks(), [&](Rank rank) {
    const RankProgram program = lowering.program(rank);
    verifier.add(rank, program);
    sketches[static_cast<std::size_t>(rank)] = sketch(lowering.outline(), *tiles, rank, program, block);
  });
  return {lowering.outline(), verifier.finish(), std::move(sketches)};
}

}  // namespace

PassPlan plan_pass(const Recipe& recipe, std::shared_ptr<const Tiles> tiles, Pass pass, Mode mode, const Routes& routes,
                   const Machine* machine, int threads) {
  if (machine != nullptr) check_described(*machine, tiles->ranks(), tiles->sharding().problem.dtype);
  auto [outline, report, sketches] =
      prove(Lowering(recipe.name, tiles, recipe.table(tiles, routes.node_size), pass, mode, routes), tiles,
            machine != nullptr ? machine->tiles.block : 1);
  PassPlan plan;
  plan.schedule = recipe.name;
  plan.seq_q = tiles->sharding().problem.seq_q;
  plan.pass = pass;
  plan.ranks = tiles->ranks();
  plan.mode = mode;
  plan.routes = routes;
  plan.report = std::move(report);
  plan.idle_ideal = ideal_idle(sketches);
  if (machine != nullptr && machine->nodes > 1) {
    for (std::size_t rank = 0; rank < sketches.size(); ++rank) {
      plan.report.counts.bytes_far[rank] = far_bytes(sketches[rank], *machine);
    }
  }
  if (machine != nullptr) plan.predicted_s = simulate(outline, sketches, *machine, threads).seconds;
  return plan;
}

std::variant<std::vector<PassPlan>, std::string> plan_schedule(std::string_view name, const Problem& problem, int ranks,
                                                               Passes passes, std::optional<Mode> mode,
                                                               const Routes& routes, const Machine& machine) {
  auto resolved = resolve_pair(name, problem, ranks);
  if (auto* reason = std::get_if<std::string>(&resolved)) return std::move(*reason);
  const RecipePair& pair = std::get<RecipePair>(resolved);
  const Recipe &forward = pair.forward, &backward = pair.backward;
  std::vector<PassPlan> plans;
  const auto add = [&](const Recipe& recipe, Pass pass) {
    const auto tiles = std::make_shared<const Tiles>(shard(problem, ranks, recipe.layout, recipe.groups));
    plans.push_back(
        plan_pass(recipe, tiles, pass, mode.value_or(recipe.mode), routes, &machine, machine.threads_of_rank(ranks)));
    if (forward.name != backward.name) plans.back().schedule = fmt::format("{}/{}", forward.name, backward.name);
  };
  try {
    add(forward, Pass::forward);
    if (passes == Passes::both) add(backward, Pass::backward);
  } catch (const TooManyMessages& refused) {
    return refused.reason();
  }
  return plans;
}

std::string to_json(const PassPlan& plan) {
  nlohmann::ordered_json json{{"schema_version", 1}};
  json.update(RowFields::json_of(plan));
  return json.dump();
}

}  // namespace distattn
