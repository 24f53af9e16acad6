#pragma once
/// A schedule ready to run: chosen or named, lowered and proved.

#include <memory>
#include <string>
#include <variant>

#include "cli/options/schedule_options.hpp"
#include "distattn/launch.hpp"
#include "distattn/plan.hpp"

namespace distattn::cli {

struct Prepared {
  std::string name;  ///< "ring", "ring/burst"
  std::shared_ptr<const AttentionPlan> plan;
};

/// What `name` and the options ask for, `auto` and what else they leave open decided by rank 0; or why it has no plan.
/// `threads` is what a rank computes with, for auto to weigh. Collective: all ranks get the same answer.
std::variant<Prepared, WhyNot> try_to_prepare(World& world, const std::string& name, const Problem& problem,
                                              int threads, const ScheduleOptions& options, Passes passes);
/// The same; throws the reason.
Prepared prepare(World& world, const std::string& name, const Problem& problem, int threads,
                 const ScheduleOptions& options, Passes passes);

/// Programs of a file, proved.
Prepared prepare_program(const std::string& path);

}  // namespace distattn::cli
