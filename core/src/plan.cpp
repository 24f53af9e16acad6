#include "distattn/plan.hpp"

#include "parallel.hpp"

namespace distattn {

PassPlan plan_pass(const Recipe& recipe, std::shared_ptr<const Tiles> tiles, Pass pass, Mode mode, const Routes& routes,
                   const Machine* machine, int threads) {
  const Lowering lowering(recipe.name, tiles, recipe.table(tiles, routes.node_size), pass, mode, routes);
  Verifier verifier(lowering.outline(), tiles);
  std::vector<ProgramSketch> sketches(static_cast<std::size_t>(tiles->ranks()));
  for_each_rank(tiles->ranks(), [&](Rank rank) {
    const RankProgram program = lowering.program(rank);
    verifier.add(rank, program);
    sketches[static_cast<std::size_t>(rank)] = sketch(lowering.outline(), *tiles, rank, program);
  });
  PassPlan plan;
  plan.schedule = recipe.name;
  plan.pass = pass;
  plan.ranks = tiles->ranks();
  plan.mode = mode;
  plan.report = verifier.finish();
  plan.idle_ideal = ideal_idle(sketches);
  if (machine != nullptr) plan.predicted_s = simulate(lowering.outline(), sketches, *machine, threads).seconds;
  return plan;
}

}  // namespace distattn
