#pragma once
/// A command that computes, on ranks that are here or in other processes too.

#include <functional>

#include "command.hpp"
#include "launch_options.hpp"

namespace distattn::cli {

/// Finds the ranks of this run, as many as `ranks` says (empty: as a launcher started, or 1), and calls `body`. What
/// that throws ends the run of all ranks, and so does an interruption. From here on only rank 0 prints.
Outcome with_ranks(const LaunchOptions& options, const std::vector<std::int64_t>& ranks,
                   const std::function<Outcome(World&)>& body);

/// The options with nodes as the launcher placed the ranks, where it used several and nobody said otherwise.
ScheduleOptions on_nodes_of(const World& world, ScheduleOptions options);

}  // namespace distattn::cli
