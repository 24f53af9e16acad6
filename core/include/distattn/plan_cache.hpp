#pragma once
/// Plans that are kept, and made ahead of their use: for masks that change from step to step.

#include <cstddef>
#include <memory>

#include "distattn/plan.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// Keeps the plans that were asked for last. A training loop gets the plan of a step, begins that of the next, and runs
/// its step meanwhile:
///
///     PlanCache plans;
///     auto plan = plans.get(problem_of(0), ranks, request);
///     for (int step = 0; step < steps; ++step) {
///       plans.begin(problem_of(step + 1), ranks, request);
///       Attention(plan, device, transport).forward(bindings);
///       plan = plans.get(problem_of(step + 1), ranks, request);
///     }
///
/// Ranks that describe the machine alike make the same plans. All functions may be called from several threads.
class PlanCache {
 public:
  /// Keeps this many plans, at least 1.
  explicit PlanCache(std::size_t most_plans = 16);
  /// Waits for plans that were begun.
  ~PlanCache();
  PlanCache(const PlanCache&) = delete;
  PlanCache& operator=(const PlanCache&) = delete;

  /// The plan of equal arguments, made now unless it is kept or has been begun, for which it waits. Throws what the
  /// constructor of AttentionPlan throws; a failure is kept no longer than until it was thrown once.
  std::shared_ptr<const AttentionPlan> get(const Problem& problem, int ranks, const ScheduleRequest& request);
  /// Makes the plan on a thread of its own, unless it is kept or has been begun. Throws Error(environment) if the
  /// system has no thread.
  void begin(const Problem& problem, int ranks, const ScheduleRequest& request);
  /// How many plans are kept or have been begun.
  std::size_t size() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distattn
#pragma GCC visibility pop
