#pragma once
/// How much memory this process may still take, so that what cannot fit is refused before anything is allocated.

#include <cstdint>
#include <functional>
#include <string_view>

#include "distattn/launch.hpp"

namespace distattn::cli {

/// Throws Error(environment) that says how much `what` needs, and what leaves less than that: the machine to all ranks
/// on it, one of this process's control groups to those that it holds, or this process's own limits to those that live
/// here. `bytes_of`: what `ranks` ranks are about to allocate. Collective: no rank takes memory before all have seen
/// what is free.
void require_memory(World& world, const std::function<double(int ranks)>& bytes_of, std::string_view what);

/// Most that a rank of this process may have, whatever is in use now, where each of those that share a limit has as
/// much of it. HostResources::unlimited where nothing limits it.
std::int64_t memory_of_rank(const World& world);

}  // namespace distattn::cli
