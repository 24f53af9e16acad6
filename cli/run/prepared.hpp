#pragma once
/// A schedule ready to run: chosen or named, lowered and proved.

#include <memory>
#include <string>

#include "cli/options/schedule_options.hpp"
#include "distattn/attention.hpp"
#include "distattn/choose.hpp"
#include "distattn/launch.hpp"

namespace distattn::cli {

struct Prepared {
  std::string name;  ///< "ring", "ring/burst"
  std::shared_ptr<const AttentionPlan> plan;
};

/// What `name` and the options ask for, auto replaced by the schedule and routes that it stands for. `threads` is what
/// a rank computes with: auto weighs it on `machine`.
AttentionOptions attention_options(const std::string& name, const Problem& problem, int ranks, int threads,
                                   const ScheduleOptions& options, Passes passes, const Machine& machine);

/// The same, decided by rank 0. Collective.
AttentionOptions decided_options(World& world, const std::string& name, const Problem& problem, int threads,
                                 const ScheduleOptions& options, Passes passes);

/// What a rank needs beyond --memory; empty where that is enough.
std::string why_too_large(const AttentionPlan& plan, const ScheduleOptions& options);

/// Throws Error(usage) with the reason when the schedule does not apply, fails its proof, or needs more than --memory.
/// Collective: rank 0 decides.
Prepared prepare(World& world, const std::string& name, const Problem& problem, int threads,
                 const ScheduleOptions& options, Passes passes);

/// Programs of a file, proved.
Prepared prepare_program(const std::string& path);

}  // namespace distattn::cli
