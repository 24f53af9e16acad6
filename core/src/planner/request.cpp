#include "distattn/request.hpp"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "core/src/planner/together.hpp"
#include "distattn/choose.hpp"
#include "distattn/layers.hpp"
#include "distattn/layout.hpp"
#include "distattn/table.hpp"

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
  if (request.layout.empty()) return request.schedule == "auto" || request.schedule == "placed";
  return request.schedule == "auto" && layout_named(request.layout);
}

std::variant<Routes, WhyNot> routes_of(const ScheduleRequest& request, const Machine& machine, int ranks) {
  const int ahead = request.ahead.value_or(0);
  const int node_size = request.node_size.value_or(machine.nodes > 1 ? machine.ranks_per_node : 0);
  if (node_size < 0 || ahead < 0) return Routes{node_size, ahead};  // Lowering refuses them
  if (0 < node_size && node_size < ranks) return Routes{node_size, ahead};
  if (ahead == 0) return Routes{};
  const std::string why =
      fmt::format("ahead {} (one node has {} rank{}: nothing travels between nodes): {}", ahead, ranks,
                  ranks == 1 ? "" : "s", node_size == 0 ? "add node_size" : "use more ranks, or smaller nodes");
  return WhyNot{WhyNot::Kind::no_nodes, request.schedule, ranks, why, why};
}

namespace {

/// A checked request, where its schedule is searched or its messages travel.
struct Checked {
  ScheduleRequest request;
  Machine machine;
  Routes routes;

  ScheduleRequest decided() && {
    request.machine = "";
    return std::move(request);
  }
  /// Nothing was left open but the routes.
  ScheduleRequest as_asked() && {
    request.node_size = routes.node_size;
    request.ahead = routes.ahead;
    return std::move(*this).decided();
  }
  ScheduleRequest with(const Choice& choice) const { return Checked{with_choice(request, choice), {}, {}}.decided(); }
};

std::variant<Checked, WhyNot> checked(const Problem& problem, int ranks, ScheduleRequest request) {
  if (ranks < 1) refuse(fmt::format("{} ranks (there is one at least): plan for some", ranks));
  if (ranks > most_ranks) refuse(fmt::format("{} ranks (more than {}): plan for fewer", ranks, most_ranks));
  check(problem);
  Machine machine = machine_of(request).value_or(Machine()).in_nodes_of(request.node_size.value_or(0));
  const auto layout = layout_named(request.layout);
  // A placement's meshes know the nodes: its messages go straight unless routes are asked for.
  if (!layout && !request.layout.empty() && !request.ahead) request.node_size = request.node_size.value_or(0);
  auto routes = routes_of(request, machine, ranks);
  if (auto* const why = std::get_if<WhyNot>(&routes)) return std::move(*why);
  if (!std::isfinite(request.balance_tokens) || request.balance_tokens < 0) {
    refuse(fmt::format("balance_tokens {} (a part of a rank's share): give 0 or more", request.balance_tokens));
  }
  if (layout && request.schedule != "auto") {
    const auto pair = resolve_pair(request.schedule, *layout, problem, ranks);
    if (const auto* const reason = std::get_if<std::string>(&pair)) {
      return WhyNot{
          WhyNot::Kind::does_not_apply, request.schedule, ranks, *reason,
          fmt::format("schedule {} does not go with layout {} on {} ranks ({}): choose ring, burst or another "
                      "mesh, or auto",
                      request.schedule, request.layout, ranks, *reason)};
    }
    request.schedule = name_of(std::get<RecipePair>(pair));
    request.layout.clear();
  }
  if (!layout && !request.layout.empty()) {
    const auto first = request.layout.find_first_not_of(" \t\r\n");
    if (first == request.layout.npos || (request.layout[first] != '{' && request.layout[first] != '['))
      refuse(
          fmt::format("layout {} is not known (a name, or owners as JSON): choose one of block, zigzag, striped, "
                      "striped:B, chunked",
                      request.layout));
    if (request.schedule != "auto" && request.schedule != "placed")
      refuse(fmt::format("schedule {} has a layout of its own (placed takes one): leave the layout out",
                         request.schedule));
    request.schedule = "placed";
  }
  return Checked{std::move(request), std::move(machine), std::get<Routes>(routes)};
}

void check_kinds(const std::vector<LayerKind>& kinds) {
  if (kinds.empty()) refuse("no kind of layers (a layout is for at least one): give one");
  const Problem& first = kinds.front().problem;
  for (const LayerKind& kind : kinds) {
    if (!std::isfinite(kind.weight) || kind.weight <= 0) {
      refuse(fmt::format("weight {} (how many layers there are of a kind): give a positive number", kind.weight));
    }
    if (kind.problem.seq_q == first.seq_q && kind.problem.seq_kv == first.seq_kv) continue;
    refuse(fmt::format("{} queries and {} keys beside {} and {} (one layout deals out one sequence): plan them apart",
                       kind.problem.seq_q, kind.problem.seq_kv, first.seq_q, first.seq_kv));
  }
}

}  // namespace

std::variant<ScheduleRequest, WhyNot> decided(const Problem& problem, int ranks, ScheduleRequest request) {
  auto made = checked(problem, ranks, std::move(request));
  if (auto* const why = std::get_if<WhyNot>(&made)) return std::move(*why);
  auto& asked = std::get<Checked>(made);
  if (!has_open_choice(asked.request)) return std::move(asked).as_asked();
  auto ranking = rank_schedules(problem, ranks, asked.machine, asked.request);
  if (auto* const why = std::get_if<WhyNot>(&ranking)) return std::move(*why);
  return asked.with(std::get<std::vector<Choice>>(ranking).front());
}

std::variant<std::vector<ScheduleRequest>, WhyNot> decided(const std::vector<LayerKind>& kinds, int ranks,
                                                           const ScheduleRequest& request) {
  check_kinds(kinds);
  std::vector<ScheduleRequest> requests;
  if (kinds.size() == 1 || !has_open_choice(request)) {
    for (const LayerKind& kind : kinds) {
      auto one = decided(kind.problem, ranks, request);
      if (auto* const why = std::get_if<WhyNot>(&one)) return std::move(*why);
      requests.push_back(std::get<ScheduleRequest>(std::move(one)));
    }
    return requests;
  }
  for (const LayerKind& kind : kinds) check(kind.problem);
  auto made = checked(kinds.front().problem, ranks, request);
  if (auto* const why = std::get_if<WhyNot>(&made)) return std::move(*why);
  const auto& asked = std::get<Checked>(made);
  auto ranking = rank_together(kinds, ranks, asked.machine, asked.request, asked.routes);
  if (auto* const why = std::get_if<WhyNot>(&ranking)) return std::move(*why);
  for (const Choice& choice : std::get<std::vector<SharedChoice>>(ranking).front().each)
    requests.push_back(asked.with(choice));
  return requests;
}

}  // namespace distattn
