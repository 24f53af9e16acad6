#include "distattn/layers.hpp"

#include <fmt/core.h>

#include <cstdint>
#include <utility>

#include "core/src/format.hpp"
#include "distattn/error.hpp"

namespace distattn {
namespace {

/// Whether each rank has the same positions in the same order.
bool same_owners(const Sharding& a, const Sharding& b) {
  for (Rank rank = 0; rank < a.ranks; ++rank) {
    if (positions(a.queries, rank) != positions(b.queries, rank)) return false;
    if (positions(a.keys, rank) != positions(b.keys, rank)) return false;
  }
  return true;
}

WhyNot why_not(WhyNot::Kind kind, const AttentionPlan& plan, std::string reason, const char* suggestion) {
  std::string message = fmt::format("schedule {} {}: {}", plan.name(), reason, suggestion);
  return {kind, plan.name(), plan.ranks(), std::move(reason), std::move(message)};
}

}  // namespace

std::variant<std::vector<AttentionPlan>, WhyNot> plan(const std::vector<LayerKind>& kinds, int ranks,
                                                      const ScheduleRequest& request) {
  auto decision = decided(kinds, ranks, request);
  if (auto* const why = std::get_if<WhyNot>(&decision)) return std::move(*why);
  return plan(kinds, ranks, std::get<std::vector<ScheduleRequest>>(decision));
}

std::variant<std::vector<AttentionPlan>, WhyNot> plan(const std::vector<LayerKind>& kinds, int ranks,
                                                      const std::vector<ScheduleRequest>& requests) {
  DISTATTN_EXPECT(!kinds.empty() && kinds.size() == requests.size());
  std::vector<AttentionPlan> plans;
  std::int64_t bytes = 0;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    auto planned = plan(kinds[k].problem, ranks, requests[k]);
    if (auto* const why = std::get_if<WhyNot>(&planned)) return std::move(*why);
    plans.push_back(std::get<AttentionPlan>(std::move(planned)));
    bytes += plans.back().memory_bytes();
    if (same_owners(plans.front().outline(Pass::forward).sharding, plans.back().outline(Pass::forward).sharding))
      continue;
    return why_not(WhyNot::Kind::does_not_apply, plans.back(),
                   "deals tokens out by the mask, and the masks of one layout differ",
                   "choose one whose layout depends on positions alone, or auto");
  }
  const std::int64_t allowed = requests.front().memory_bytes;
  if (bytes <= allowed) return plans;
  return why_not(
      WhyNot::Kind::too_large, plans.front(),
      fmt::format("needs {} a rank for {} masks (memory_bytes allows {})", format_bytes(static_cast<double>(bytes)),
                  kinds.size(), format_bytes(static_cast<double>(allowed))),
      "choose another schedule or more ranks");
}

}  // namespace distattn
