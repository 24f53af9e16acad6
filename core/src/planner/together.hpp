#pragma once
/// The search for one layout that several kinds of layers share.

#include <variant>
#include <vector>

#include "distattn/choose.hpp"
#include "distattn/layers.hpp"

namespace distattn {

/// A schedule for each kind, all on one layout.
struct SharedChoice {
  std::vector<Choice> each;
  double predicted_s = 0;  ///< the sum over kinds, each times its weight
};

/// Best first, one for each layout; as rank_schedules does it for one problem.
std::variant<std::vector<SharedChoice>, WhyNot> rank_together(const std::vector<LayerKind>& kinds, int ranks,
                                                              const Machine& machine, const ScheduleRequest& request,
                                                              const Routes& routes);

}  // namespace distattn
