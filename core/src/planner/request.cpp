#include "distattn/request.hpp"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "distattn/choose.hpp"

namespace distattn {
namespace {

constexpr int most_ranks = 1 << 16;

/// Nothing where a named schedule is asked for and no machine that could have nodes.
std::optional<Machine> machine_of(const ScheduleRequest& request) {
  const auto* const name = std::get_if<std::string>(&request.machine);
  if (name == nullptr) return std::get<Machine>(request.machine);
  if (name->empty() && !has_open_choice(request)) return {};
  return find_machine(name->empty() ? "this" : *name);
}

}  // namespace

bool has_open_choice(const ScheduleRequest& request) {
  return request.layout.empty() && (request.schedule == "auto" || request.schedule == "placed");
}

std::variant<Routes, WhyNot> routes_of(const ScheduleRequest& request, const Machine& machine, int ranks) {
  const int ahead = request.ahead.value_or(0);
  const int node_size = request.node_size.value_or(machine.nodes > 1 ? machine.ranks_per_node : 0);
  if (node_size < 0 || ahead < 0) return Routes{node_size, ahead};  // Lowering refuses them
  if (0 < node_size && node_size < ranks) return Routes{node_size, ahead};
  if (ahead == 0) return Routes{};
  const std::string why = fmt::format("ahead {} (one node has {} ranks: nothing travels between nodes): {}", ahead,
                                      ranks, node_size == 0 ? "add node_size" : "use more ranks, or smaller nodes");
  return WhyNot{WhyNot::Kind::no_nodes, request.schedule, ranks, why, why};
}

std::variant<ScheduleRequest, WhyNot> decided(const Problem& problem, int ranks, ScheduleRequest request) {
  if (ranks < 1) refuse(fmt::format("{} ranks (there is one at least): plan for some", ranks));
  if (ranks > most_ranks) refuse(fmt::format("{} ranks (more than {}): plan for fewer", ranks, most_ranks));
  check(problem);
  const Machine machine = machine_of(request).value_or(Machine()).in_nodes_of(request.node_size.value_or(0));
  // A placement's meshes know the nodes: its messages go straight unless routes are asked for.
  if (!request.layout.empty() && !request.ahead) request.node_size = request.node_size.value_or(0);
  auto routes = routes_of(request, machine, ranks);
  if (auto* const why = std::get_if<WhyNot>(&routes)) return std::move(*why);
  if (!std::isfinite(request.balance_tokens) || request.balance_tokens < 0) {
    refuse(fmt::format("balance_tokens {} (a part of a rank's share): give 0 or more", request.balance_tokens));
  }
  if (!request.layout.empty()) {
    if (request.schedule != "auto" && request.schedule != "placed")
      refuse(fmt::format("schedule {} has a layout of its own (placed takes one): leave the layout out",
                         request.schedule));
    request.schedule = "placed";
  }
  if (has_open_choice(request)) {
    auto ranking = rank_schedules(problem, ranks, machine, request);
    if (auto* const why = std::get_if<WhyNot>(&ranking)) return std::move(*why);
    request = with_choice(std::move(request), std::get<std::vector<Choice>>(ranking).front());
  } else {
    request.node_size = std::get<Routes>(routes).node_size;
    request.ahead = std::get<Routes>(routes).ahead;
  }
  request.machine = "";
  return request;
}

}  // namespace distattn
