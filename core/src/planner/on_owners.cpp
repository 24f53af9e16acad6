#include "core/src/planner/on_owners.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "distattn/lower.hpp"

namespace distattn {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// The trial with the least `cost`, null if there is none; the first of several.
template <class Trials, class Cost>
auto least_of(const Trials& trials, Cost cost) -> decltype(trials.data()) {
  const auto least = std::min_element(trials.begin(), trials.end(),
                                      [&](const auto& a, const auto& b) { return a.cost.*cost < b.cost.*cost; });
  return least == trials.end() ? nullptr : &*least;
}

}  // namespace

std::vector<Pass> TrialsOfKind::passes() const {
  return request.passes == Passes::both ? std::vector{Pass::forward, Pass::backward} : std::vector{Pass::forward};
}

OnOwners::OnOwners(const TrialsOfKind& trials, const Placement& owners) : of_kind_(trials) {
  add_way(owners);
  if (owners.meshes.empty()) return;
  Placement alone = owners;
  alone.meshes.clear();
  alone.mesh_of.clear();
  alone.groups = 1;
  add_way(std::move(alone));
}

void OnOwners::add_way(Placement placement) {
  Candidate made = candidate_of(std::move(placement), of_kind_.problem, of_kind_.costs, of_kind_.request.passes);
  const Tiles& tiles = *made.tiles;
  ways_.push_back({std::move(made), SeenTiles(tiles, of_kind_.machine.tiles.block), {}});
  ways_.back().seen.remember();
}

void OnOwners::add(const std::vector<Staging>& stagings) {
  for (Way& way : ways_) {
    const Placement& made = way.candidate.placement;
    const bool has_nodes = 1 < made.node_size && made.node_size < made.ranks;
    for (const Staging staging : stagings) {
      if (staging == Staging::by_place && !has_nodes) continue;
      if (staging == Staging::by_distance_late && made.meshes.size() < 2) continue;
      if (staging == Staging::by_part && made.part_of.empty()) continue;
      auto placement = std::make_shared<Placement>(made);
      for (PlacedPass& pass : placement->passes) pass.staging = staging;
      for (const Pass pass : of_kind_.passes()) add(way, placement, pass);
    }
  }
}

void OnOwners::add_other_ends() {
  const auto fastest =
      std::min_element(ways_.begin(), ways_.end(), [&](const Way& a, const Way& b) { return seconds(a) < seconds(b); });
  for (const Pass pass : of_kind_.passes()) {
    const Trial* const best = least_of(fastest->trials[pass], &PassCost::seconds);
    if (best == nullptr) continue;
    for (auto& placement : with_other_ends(*best->placement, pass)) add(*fastest, std::move(placement), pass);
  }
}

void OnOwners::add(Way& way, std::shared_ptr<const Placement> placement, Pass pass) const {
  const Recipe recipe = recipe_of(placement, pass);
  try {
    const PassCost cost =
        cost_of(recipe, way.candidate.tiles, way.seen, pass, of_kind_.request.mode.value_or(recipe.mode),
                of_kind_.routes, of_kind_.machine, of_kind_.threads);
    way.trials[pass].push_back({std::move(placement), cost});
  } catch (const TooManyMessages&) {
    // This way has no trial of the pass, so that it is never chosen.
  }
}

double OnOwners::seconds(const Way& way) const {
  double sum = 0;
  for (const Pass pass : of_kind_.passes()) {
    const Trial* const fastest = least_of(way.trials[pass], &PassCost::seconds);
    sum += fastest == nullptr ? never : fastest->cost.seconds;
  }
  return sum;
}

double OnOwners::seconds() const {
  double least = never;
  for (const Way& way : ways_) least = std::min(least, seconds(way));
  return least;
}

std::vector<Choice> OnOwners::choices() const {
  std::vector<Choice> all;
  for (const Way& way : ways_) {
    if (seconds(way) == never) continue;
    const auto add = [&](auto cost) {
      Choice choice{"placed", of_kind_.routes, 0, 0, nullptr};
      Placement placement = way.candidate.placement;
      for (const Pass pass : of_kind_.passes()) {
        const Trial& best = *least_of(way.trials[pass], cost);
        placement.passes[pass] = best.placement->passes[pass];
        choice.predicted_s += best.cost.seconds;
        choice.memory_bytes += best.cost.memory_bytes;
      }
      choice.placement = std::make_shared<const Placement>(std::move(placement));
      all.push_back(std::move(choice));
    };
    add(&PassCost::seconds);
    add(&PassCost::memory_bytes);
  }
  return all;
}

}  // namespace distattn
