#pragma once
/// What ranks in different processes make sure of before they compute: that they are about to do the same.

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "distattn/attention.hpp"
#include "distattn/launch.hpp"
#include "inputs.hpp"

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

/// What `decide` returns on rank 0, which alone calls it: what depends on a rank's own machine must be decided once.
AttentionOptions decided_by_first(World& world, const std::function<AttentionOptions()>& decide);

}  // namespace distattn::cli
