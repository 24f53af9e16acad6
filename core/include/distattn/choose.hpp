#pragma once
/// The search behind `auto`: over tables, layouts, mesh shapes and `ahead`, by the time that simulate predicts.

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "distattn/placement.hpp"
#include "distattn/request.hpp"
#include "distattn/simulate.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// A schedule "F" or "F/B" with its predicted cost.
struct Choice {
  std::string name;
  Routes routes;
  double predicted_s = 0;         ///< predicted seconds of the requested passes together
  std::int64_t memory_bytes = 0;  ///< largest size of a rank's buffers, the sum of the requested passes
  std::shared_ptr<const Placement> placement = {};  ///< of "placed" only: to_json of it is ScheduleRequest::layout
};

/// Returns schedules in the order of predicted time, then of name; auto chooses the first. Both passes of a schedule
/// have the same layout. The list holds the best few schedules of each layout, each once, with its best `ahead`. The
/// result depends on the arguments only: ranks that pass the same arguments choose the same schedule, but ranks that
/// each describe their own machine may not (attention.hpp). Ignores the request's machine; of its schedule only
/// "placed" counts, for which the list holds the best placement alone. The buffers of a rank must fit in the memory
/// that both the request and the machine allow. With latents, keys and values are sent as those. Returns WhyNot if no
/// schedule applies or fits, with the memory that each schedule needs, and if the machine's description is incomplete.
std::variant<std::vector<Choice>, WhyNot> rank_schedules(const Problem& problem, int ranks, const Machine& machine,
                                                         const ScheduleRequest& request,
                                                         const Latents* latents = nullptr);

/// What keeps a placement from being faster, by the model that places: "one document", "near" or "far" links,
/// "tokens" (of a rank, see balance_tokens) or "compute". Takes as long as placing some times.
const char* what_binds(const Problem& problem, int ranks, const Machine& machine, const ScheduleRequest& request);

/// The request with what was chosen: schedule, routes and layout.
ScheduleRequest with_choice(ScheduleRequest request, const Choice& choice);

}  // namespace distattn
#pragma GCC visibility pop
