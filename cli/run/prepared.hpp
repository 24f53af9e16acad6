#pragma once
/// A schedule ready to run: chosen or named, lowered and proved.

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "cli/options/schedule_options.hpp"
#include "distattn/launch.hpp"
#include "distattn/layers.hpp"

namespace distattn::cli {

/// Ranks in one process share it.
using SharedPlan = std::shared_ptr<const AttentionPlan>;

/// What `name` and the options ask for, for kinds of layers on one layout, `auto` and what else they leave open decided
/// by rank 0; or why it has no plan. `threads` is what a rank computes with, for auto to weigh. Collective: all ranks
/// get the same answer, a plan for each kind.
std::variant<std::vector<SharedPlan>, WhyNot> try_to_prepare(World& world, const std::string& name,
                                                             const std::vector<LayerKind>& kinds, int threads,
                                                             const ScheduleOptions& options, Passes passes);
/// The same for one problem; throws the reason.
SharedPlan prepare(World& world, const std::string& name, const Problem& problem, int threads,
                   const ScheduleOptions& options, Passes passes);

}  // namespace distattn::cli
