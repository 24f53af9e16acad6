#include "core/src/planner/trials.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "core/src/prediction/sketch.hpp"

namespace distattn {
namespace {

constexpr double resolution_s = 1e-9;

}  // namespace

PassCost cost_of(const Recipe& recipe, const std::shared_ptr<const Tiles>& tiles, const SeenTiles& seen, Pass pass,
                 Mode mode, const Routes& routes, const Machine& machine, int threads, const Latents* latents) {
  const Lowering lowering(recipe.name, tiles, recipe.table(tiles, routes.node_size), pass, mode, routes);
  PassCost cost;
  std::vector<ProgramSketch> sketches;
  for (Rank rank = 0; rank < tiles->ranks(); ++rank) {
    const RankProgram program = lowering.program(rank);
    std::int64_t bytes = 0;
    for (const std::size_t slot : program.slots) bytes += static_cast<std::int64_t>(slot);
    cost.memory_bytes = std::max(cost.memory_bytes, bytes);
    cost.memory_of_ranks.push_back(bytes);
    sketches.push_back(sketch(lowering.outline(), seen, rank, program, latents, machine.cores > 0));
  }
  const double seconds = simulate(lowering.outline(), sketches, machine, threads).seconds;
  cost.seconds = std::round(seconds / resolution_s) * resolution_s;
  return cost;
}

std::vector<Trial> fastest(const std::vector<Trial>& trials, Pass pass, std::size_t count) {
  std::vector<Trial> some;
  std::copy_if(trials.begin(), trials.end(), std::back_inserter(some),
               [pass](const Trial& trial) { return trial.pass == pass; });
  std::stable_sort(some.begin(), some.end(), [](const Trial& a, const Trial& b) {
    return std::tie(a.cost.seconds, a.recipe.name) < std::tie(b.cost.seconds, b.recipe.name);
  });
  if (some.size() > count) some.erase(some.begin() + static_cast<std::ptrdiff_t>(count), some.end());
  return some;
}

}  // namespace distattn
