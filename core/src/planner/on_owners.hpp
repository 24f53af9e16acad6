#pragma once
/// How fast one kind of layers is on owners of tokens that may have been chosen for another.

#include <memory>
#include <vector>

#include "core/src/planner/placements.hpp"
#include "core/src/planner/trials.hpp"
#include "distattn/choose.hpp"

namespace distattn {

/// What all trials of one kind have in common. What it refers to outlives them.
struct TrialsOfKind {
  const Problem& problem;
  const ScheduleRequest& request;
  const Machine& machine;
  PlacementCosts costs;
  Routes routes;
  int threads;

  std::vector<Pass> passes() const;
};

/// One placement's owners: its meshes compute, or the owners of the queries alone, as suits a window that is much
/// shorter than what the meshes were made for. Different objects may be used at once.
class OnOwners {
 public:
  OnOwners(const TrialsOfKind& trials, const Placement& owners);

  /// Tries all passes in these orders of steps.
  void add(const std::vector<Staging>& stagings);
  /// Tries the fastest so far with fewer and more of each rank's own tiles at the end.
  void add_other_ends();
  /// The least time of all passes; infinite if one could not be planned.
  double seconds() const;
  /// For each way to compute, the fastest passes and those with the least memory.
  std::vector<Choice> choices() const;

 private:
  struct Trial {
    std::shared_ptr<const Placement> placement;
    PassCost cost;
  };
  struct Way {
    Candidate candidate;
    SeenTiles seen;
    PerPass<std::vector<Trial>> trials;
  };
  void add_way(Placement placement);
  void add(Way& way, std::shared_ptr<const Placement> placement, Pass pass) const;
  double seconds(const Way& way) const;

  const TrialsOfKind& of_kind_;
  std::vector<Way> ways_;
};

}  // namespace distattn
