#pragma once
/// A command that computes, on ranks that are here or in other processes too.

#include <functional>
#include <optional>

#include "cli/command.hpp"
#include "cli/options/launch_options.hpp"

namespace distattn::cli {

/// Finds the ranks of this run, as many as `ranks` says (empty: as a launcher started, or 1), and calls `body`. What
/// that throws ends the run of all ranks, and so does an interruption. From here on only rank 0 prints.
Outcome with_ranks(const ComputeOptions& options, const std::vector<std::int64_t>& ranks,
                   const std::function<Outcome(World&)>& body);

/// The ranks of one of several parts of a command: those that a launcher started, or threads of this process, of which
/// there may be another number in each part.
class WorldOf {
 public:
  WorldOf(World& launched, int ranks) : launched_(launched) {
    if (launched.in_process() || launched.size() != ranks) own_.emplace(World::of_threads(ranks));
  }
  World& get() { return own_ ? *own_ : launched_; }

 private:
  World& launched_;
  std::optional<World> own_;
};

/// What --ranks lists: what a launcher started where it started several, else `asked`, else 1. Throws Error(usage) for
/// a list where a launcher's ranks are one number.
std::vector<int> rank_counts(const World& launched, const std::vector<std::int64_t>& asked);
/// Calls `body` as with_ranks() does, for parts that have any of `ranks`.
Outcome with_rank_counts(const ComputeOptions& options, const std::vector<std::int64_t>& ranks,
                         const std::function<Outcome(World&)>& body);

/// What --machine names, else the machine of rank 0, with the links of the transport that connects the ranks, and with
/// nodes where they are on several. Collective.
Machine machine_of(World& world, const ScheduleOptions& options);
/// The same of a machine that is known to all.
Machine machine_for(const World& world, const Machine& machine, const ScheduleOptions& options);

/// The options with nodes as the launcher placed the ranks, where it used several and nobody said otherwise.
ScheduleOptions on_nodes_of(const World& world, ScheduleOptions options);

}  // namespace distattn::cli
