#pragma once
/// `plan --step`: a training step predicted on a machine, under every checkpointing policy.

#include <string>
#include <vector>

#include "cli/plan/plan_rows.hpp"
#include "cli/step/prediction.hpp"

namespace distattn::cli {

class App;

struct StepPlanOptions {
  bool asked = false;
  std::string model;                  ///< empty: only with --paper
  std::vector<std::string> policies;  ///< empty: all
  step::StatePlacement state = step::StatePlacement::sharded;
};

/// --step, --checkpoint, --state; after all options of the plan that --step excludes.
void add_step_plan_options(App& app, StepPlanOptions& options);

/// What of a plan's request a step takes; `scheduled`: --schedule was given, else auto is meant. Throws Error(usage)
/// for options that the model answers.
struct StepPlanRequest {
  const StepPlanOptions& options;
  const PlanRequest& plan;
  bool scheduled = false;
};

/// Prints a row for each sequence, number of ranks, schedule and policy: by sequence and ranks, then best first.
/// Throws Error(usage) where nothing is left, saying why.
void print_step_plan(const StepPlanRequest& request, bool json);
/// Prints a paper's whole-model figures next to ours.
void print_step_paper(const std::string& paper, bool json);

}  // namespace distattn::cli
