#pragma once
/// Plans for layers that attend differently, such as full and window attention in turn, on one layout.

#include <variant>
#include <vector>

#include "distattn/plan.hpp"
#include "distattn/problem.hpp"
#include "distattn/request.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// Layers of a model that compute the same problem.
struct LayerKind {
  Problem problem;
  /// How many layers of the model are of this kind, or any numbers in the same proportion. auto and placed choose the
  /// layout for which the sum of all layers' predicted seconds is least.
  double weight = 1;
};

/// Decides what the request leaves open, as decided() does for one problem, so that the plans of all kinds have the
/// same owners of tokens: with them a layer's output lies where the next layer reads it. Schedules, routes and the
/// order of steps may differ. The result has a request for each kind, in their order. Throws Error(usage) as decided()
/// does, and unless there is at least one kind, weights are positive, and all problems have the same number of queries
/// and keys.
std::variant<std::vector<ScheduleRequest>, WhyNot> decided(const std::vector<LayerKind>& kinds, int ranks,
                                                           const ScheduleRequest& request);

/// Plans every kind on one layout. A named schedule is that of all kinds. memory_bytes limits the sum over all kinds,
/// because their handles all keep buffers. Throws Error(usage) as decided() and plan() do.
std::variant<std::vector<AttentionPlan>, WhyNot> plan(const std::vector<LayerKind>& kinds, int ranks,
                                                      const ScheduleRequest& request);

/// Plans every kind with its own request, each decided before. Throws as plan().
std::variant<std::vector<AttentionPlan>, WhyNot> plan(const std::vector<LayerKind>& kinds, int ranks,
                                                      const std::vector<ScheduleRequest>& requests);

}  // namespace distattn
#pragma GCC visibility pop
