#pragma once
/// The placements that `placed` stands for, before a simulation says which is best.

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/src/placer/costs.hpp"
#include "distattn/machine.hpp"
#include "distattn/placement.hpp"
#include "distattn/request.hpp"

namespace distattn {

/// Each of more ranks adds to what a candidate costs: fewer are tried, in fewer ways.
constexpr int many_ranks = 256;

/// A placement and the lookups of its segments. Its passes say nothing of staging yet.
struct Candidate {
  Placement placement;
  std::shared_ptr<const Tiles> tiles;
};

/// Whether components are shared by ranks of several nodes, so that messages may go through nodes.
bool crosses_nodes(const Placement& placement);

/// Each once, or the reason why there is none. Depends on its arguments only.
std::variant<std::vector<Candidate>, std::string> placements_of(const Problem& problem, int ranks,
                                                                const Machine& machine, int threads,
                                                                const ScheduleRequest& request);

/// What to do where no placement is left: more freedom helps if the problem can be placed at all.
const char* instead_of_placing(const Problem& problem);

/// A placement as a candidate for a problem, which need not be the one that it was made for: its passes hide that
/// problem's results.
Candidate candidate_of(Placement placement, const Problem& problem, const PlacementCosts& costs, Passes passes);

/// The placement with fewer and with more of each rank's own tiles at the end of a pass: how many hide what travels
/// then is only estimated.
std::vector<std::shared_ptr<const Placement>> with_other_ends(const Placement& placement, Pass pass);

/// Whether there can be a placement that differs from the published schedules: for masks in one piece too, as its
/// meshes also need not have all ranks, blocks of equal length, or a step for each block.
bool may_place(const Problem& problem, int ranks);

}  // namespace distattn
