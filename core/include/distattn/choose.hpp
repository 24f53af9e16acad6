#pragma once
/// What `auto` means.

#include <cstdint>
#include <limits>
#include <string>

#include "distattn/plan.hpp"

namespace distattn {

/// Which passes a choice is made for.
enum class Passes : std::uint8_t { forward, both };

/// The schedule whose busiest rank sends the fewest bytes, then all ranks on the mean, then by name, among those that
/// apply, are proved and need at most `memory_bytes` a rank. Depends on its arguments only, so that every rank and
/// every run chooses the same. Throws Error(usage) when there is none.
std::string choose_schedule(const Problem& problem, int ranks, const Routes& routes, Passes passes,
                            std::int64_t memory_bytes = std::numeric_limits<std::int64_t>::max());

}  // namespace distattn
