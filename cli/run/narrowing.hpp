#pragma once
/// Values of files that the element type computed with does not hold.

#include "cli/run/inputs.hpp"
#include "distattn/choose.hpp"
#include "distattn/launch.hpp"
#include "distattn/layout.hpp"

namespace distattn::cli {

/// Looks at the tokens that the ranks of every process own. Refuses a finite value that would become infinite, naming
/// the array, its place and the value; notes once an array how many values would become 0. Infinities and NaNs of the
/// file stay what they are. Collective.
void check_values(World& world, const Sharding& sharding, const Inputs& inputs, Passes passes);

}  // namespace distattn::cli
