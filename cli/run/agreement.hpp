#pragma once
/// What ranks in different processes make sure of before they compute: that they are about to do the same.

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cli/run/inputs.hpp"
#include "distattn/attention.hpp"
#include "distattn/launch.hpp"

namespace distattn::cli {

/// All that follow are collectives, which throw the same Error(peer) on every rank, naming one that differs.

/// The build, and `options`: what decides which collectives a command makes.
void agree_on_command(World& world, std::string_view options);
/// Shapes, types and every band of the mask.
void agree_on_problem(World& world, const Problem& problem);
/// Values of a few tokens, the first and the last among them: no rank reads more than it needs.
void agree_on_inputs(World& world, const Inputs& inputs, bool with_backward);
/// Every byte of what each rank has read by itself.
void agree_on_bytes(World& world, std::string_view what, std::span<const std::byte> bytes);
/// Programs that were made elsewhere.
void agree_on_programs(World& world, const AttentionPlan& plan);

// What depends on a rank's own machine or files must be decided once, or seen by all: ranks that went different ways
// would wait for each other.

/// What `say` returns on rank 0, which alone calls it. The Error that it throws there is thrown on every rank.
std::string said_by_first(World& world, const std::function<std::string()>& say);
/// The same for requests that leave nothing open, or the reason why there are none.
using Decision = std::variant<std::vector<ScheduleRequest>, WhyNot>;
Decision decided_by_first(World& world, const std::function<Decision()>& decide);
/// Calls `decide` on every rank. Where it throws an Error on some, all throw that of the lowest of these.
void decided_by_all(World& world, const std::function<void()>& decide);

}  // namespace distattn::cli
