#pragma once
/// What `auto` means: a search over tables, layouts, mesh shapes and `ahead` with simulate as its cost.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "distattn/request.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// A schedule "F" or "F/B" and what it is predicted to cost.
struct Choice {
  std::string name;
  Routes routes;
  double predicted_s = 0;         ///< of the passes that were asked for
  std::int64_t memory_bytes = 0;  ///< the most that a rank's buffers take, those of both passes side by side
};

/// Schedules by predicted time, then by name, both passes of one layout; the first is what auto means. Holds the best
/// few of each layout, each once, with the `ahead` that serves it best. Depends on its arguments only, so that
/// everybody who gives the same chooses the same; ranks that describe their own machines may not (attention.hpp). The
/// request's schedule and machine are not looked at. A rank may use what the request and the machine's memory allow.
/// WhyNot when nothing applies or fits, saying how much each schedule needs, and when the machine says too little.
std::variant<std::vector<Choice>, WhyNot> rank_schedules(const Problem& problem, int ranks, const Machine& machine,
                                                         const ScheduleRequest& request);

}  // namespace distattn
#pragma GCC visibility pop
