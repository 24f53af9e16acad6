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

/// A placement and the lookups of its segments. Its passes say nothing of staging yet.
struct Candidate {
  Placement placement;
  std::shared_ptr<const Tiles> tiles;
};

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

/// Whether a placement can differ from a published mesh: the mask has parts that do not see each other, or the machine
/// ranks of unequal speed, to which no published shape gives unequal shares.
bool may_place(const Problem& problem, int ranks, const Machine& machine);

}  // namespace distattn
