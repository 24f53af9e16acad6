#include "distattn/request.hpp"

#include <fmt/core.h>

#include <utility>

#include "distattn/choose.hpp"

namespace distattn {
namespace {

/// Nothing where a named schedule is asked for and no machine that could have nodes.
std::optional<Machine> machine_of(const ScheduleRequest& request) {
  const auto* const name = std::get_if<std::string>(&request.machine);
  if (name == nullptr) return std::get<Machine>(request.machine);
  if (name->empty() && request.schedule != "auto") return {};
  return find_machine(name->empty() ? "this" : *name);
}

}  // namespace

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
  check(problem);
  const Machine machine = machine_of(request).value_or(Machine()).in_nodes_of(request.node_size.value_or(0));
  auto routes = routes_of(request, machine, ranks);
  if (auto* const why = std::get_if<WhyNot>(&routes)) return std::move(*why);
  if (request.schedule == "auto") {
    auto ranking = rank_schedules(problem, ranks, machine, request);
    if (auto* const why = std::get_if<WhyNot>(&ranking)) return std::move(*why);
    const Choice& best = std::get<std::vector<Choice>>(ranking).front();
    request.schedule = best.name;
    routes = best.routes;
  }
  request.node_size = std::get<Routes>(routes).node_size;
  request.ahead = std::get<Routes>(routes).ahead;
  request.machine = "";
  return request;
}

}  // namespace distattn
