#include "distattn/choose.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>

#include "distattn/error.hpp"

namespace distattn {
namespace {

/// Bytes of the busiest rank, bytes of all ranks, name: smaller is better.
using Cost = std::tuple<std::int64_t, std::int64_t, std::string>;

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

std::int64_t largest(const std::vector<std::int64_t>& values) {
  return *std::max_element(values.begin(), values.end());
}

/// What `recipe` costs over `passes`; nothing if it needs too much memory.
std::optional<Cost> cost_of(const Recipe& recipe, const Problem& problem, int ranks, const Routes& routes,
                            Passes passes, std::int64_t memory_bytes) {
  const auto tiles = std::make_shared<const Tiles>(shard(problem, ranks, recipe.layout, recipe.groups));
  Cost cost{0, 0, recipe.name};
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (pass == Pass::backward && passes == Passes::forward) break;
    const PassPlan plan = plan_pass(recipe, tiles, pass, recipe.mode, routes);
    const Counts& counts = plan.report.counts;
    if (!plan.report.proved() || largest(counts.memory_bytes) > memory_bytes) return std::nullopt;
    std::get<0>(cost) += largest(counts.bytes_sent);
    std::get<1>(cost) += sum(counts.bytes_sent);
  }
  return cost;
}

}  // namespace

std::string choose_schedule(const Problem& problem, int ranks, const Routes& routes, Passes passes,
                            std::int64_t memory_bytes) {
  std::optional<Cost> best;
  std::string first_reason;
  const auto note_reason = [&](const std::string& name, const std::string& reason) {
    if (first_reason.empty()) first_reason = name + ": " + reason;
  };
  for (const std::string& name : all_schedule_names(problem, ranks)) {
    const RecipeOrReason resolved = resolve_schedule(name, problem, ranks);
    if (const auto* reason = std::get_if<std::string>(&resolved)) {
      note_reason(name, *reason);
      continue;
    }
    const auto cost = cost_of(std::get<Recipe>(resolved), problem, ranks, routes, passes, memory_bytes);
    if (!cost) note_reason(name, fmt::format("a rank needs more than {} bytes", memory_bytes));
    if (cost && (!best || *cost < *best)) best = cost;
  }
  if (!best) {
    refuse(fmt::format("no schedule applies to {} ranks ({}) give other ranks or more memory", ranks, first_reason));
  }
  return std::get<2>(*best);
}

}  // namespace distattn
