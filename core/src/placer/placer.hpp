#pragma once
/// Makes placements: components of a mask on meshes of their own, or whole on one rank.

#include <optional>
#include <vector>

#include "core/src/placer/components.hpp"
#include "core/src/placer/costs.hpp"
#include "core/src/placer/packer.hpp"
#include "distattn/placement.hpp"

namespace distattn {

/// The placement with the least time that is found; nothing if none keeps within the balance. Deterministic.
std::optional<Placement> place(const Workload& workload, const PlacementCosts& costs, const PackingWish& wish,
                               std::int64_t tokens);
/// The time that place() packs for; infinite if there is no placement.
double packed_seconds(const Workload& workload, const PlacementCosts& costs, const PackingWish& wish,
                      std::int64_t tokens);

/// Of each rank's own tiles, leaves as many for the end as hide the results that still travel then.
void hide_results(Placement& placement, const Tiles& tiles, const PlacementCosts& costs, Passes passes);

}  // namespace distattn
