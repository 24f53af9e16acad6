#include "cli/plan/plan_rows.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <tuple>

#include "cli/run/prepared.hpp"
#include "cli/terminal/console.hpp"
#include "core/src/words.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

/// Plans one problem on some ranks.
class Planner {
 public:
  Planner(const PlanRequest& request, const ScheduleOptions& schedule, const Machine& machine, PlanRows& rows)
      : request_(request), schedule_(schedule), machine_(machine), rows_(rows) {}

  /// The problem with this number among all.
  void plan(std::shared_ptr<const Problem> problem, std::size_t number, int ranks) {
    problem_ = std::move(problem);
    number_ = number;
    ranks_ = ranks;
    for (const Routes& routes : route_variants()) {
      for (const std::string& name : names_of(schedule_, *problem_, ranks_)) {
        if (name == "auto") {
          choose(routes);
        } else {
          add(name, routes, false);
        }
      }
    }
  }

 private:
  Passes passes() const { return request_.backward ? Passes::both : Passes::forward; }

  std::vector<Routes> route_variants() const {
    const Routes routed = routes_of(schedule_, machine_, ranks_);
    if (routed.node_size == 0 || request_.routes == RouteKinds::routed) return {routed};
    return request_.routes == RouteKinds::straight ? std::vector{Routes{}} : std::vector{Routes{}, routed};
  }

  void choose(const Routes& routes) {
    const ChoiceLimits limits = limits_of(asked_options(schedule_, passes()), routes, machine_, ranks_);
    AutoChoice choice{*problem_, ranks_, {}};
    try {
      choice.ranking = rank_schedules(*problem_, ranks_, machine_, limits);
    } catch (const Error& refused) {
      if (refused.kind() != ErrorKind::usage) throw;
      rows_.skipped.push_back({"auto", refused.what(), ranks_});  // none of those that it chooses from can be planned
      return;
    }
    add(choice.ranking.front().name, choice.ranking.front().routes, true);
    rows_.choices.push_back(std::move(choice));
  }

  /// All passes of one schedule, or the reason why it does not apply, cannot be planned or does not fit --memory.
  void add(const std::string& name, const Routes& routes, bool automatic) {
    auto planned = plan_schedule(name, *problem_, ranks_, passes(), schedule_.mode, routes, machine_);
    if (auto* reason = std::get_if<std::string>(&planned)) {
      rows_.skipped.push_back({name, std::move(*reason), ranks_});
      return;
    }
    auto& plans = std::get<std::vector<PassPlan>>(planned);
    std::vector<const Counts*> counts;
    for (const PassPlan& plan : plans) counts.push_back(&plan.report.counts);
    const std::int64_t needed = memory_side_by_side(counts);
    if (schedule_.memory_bytes && needed > *schedule_.memory_bytes) {
      const char* const what = plans.size() > 1 ? "both passes need" : "forward needs";
      rows_.skipped.push_back({plans.front().schedule,
                               fmt::format("{} {} a rank", what, bytes_in_words(static_cast<double>(needed))), ranks_});
      return;
    }
    for (PassPlan& plan : plans) rows_.rows.push_back({std::move(plan), problem_, number_, automatic, needed});
  }

  const PlanRequest& request_;
  const ScheduleOptions& schedule_;
  const Machine& machine_;
  PlanRows& rows_;
  std::shared_ptr<const Problem> problem_;
  std::size_t number_ = 0;
  int ranks_ = 1;
};

bool better(const PlanRow& a, const PlanRow& b) {
  const auto key = [](const PlanRow& row) {
    const Counts& counts = row.plan.report.counts;
    return std::tuple(row.plan.seq_q, row.number, row.plan.ranks, row.plan.pass, row.plan.predicted_s,
                      largest(counts.bytes_sent), mean(counts.bytes_sent), row.plan.schedule,
                      row.plan.routes.node_size);
  };
  return key(a) < key(b);
}

/// Straight routes know no nodes: only a machine can have them.
void check_straight(const ScheduleOptions& options, const Machine& machine) {
  if (options.ahead) refuse(fmt::format("--ahead {} (straight routes have one lane): leave it out", *options.ahead));
  if (options.node_size && machine.nodes == 1) {
    refuse(
        fmt::format("--node-size {} (straight routes know no nodes, and machine {} is one): leave it out, or name "
                    "another --machine",
                    *options.node_size, machine.name));
  }
}

std::string text_of(const SkippedPlan& skipped) {
  return fmt::format("{} on {} ranks: {}", skipped.name, skipped.ranks, skipped.reason);
}

}  // namespace

PlanRows plan_rows(const PlanRequest& request, const Machine& machine) {
  PlanRows rows;
  if (request.routes == RouteKinds::straight) check_straight(request.schedule, machine);
  auto [problems, none] = problems_of(combinations(request.problem));
  rows.no_problems = std::move(none);
  for (const ScheduleOptions& schedule : each_mode(request.schedule)) {
    Planner planner(request, schedule, machine, rows);
    for (std::size_t i = 0; i < problems.size(); ++i) {
      const auto problem = std::make_shared<const Problem>(problems[i]);
      for (const std::int64_t ranks : schedule.ranks) planner.plan(problem, i, static_cast<int>(ranks));
    }
  }
  if (rows.rows.empty()) {
    refuse_all("no schedule is left to plan", rows.skipped, "choose another schedule, other ranks or more memory");
  }
  std::stable_sort(rows.rows.begin(), rows.rows.end(), better);
  return rows;
}

void refuse_all(const std::string& problem, const std::vector<SkippedPlan>& skipped, const std::string& suggestion) {
  std::vector<std::string> reasons;
  for (const SkippedPlan& each : skipped) reasons.push_back(text_of(each));
  refuse(fmt::format("{} ({}): {}", problem, fmt::join(reasons, "; "), suggestion));
}

void note_skipped(const std::vector<SkippedPlan>& skipped) {
  for (const SkippedPlan& each : skipped) note("skipped " + text_of(each));
}

void note_memory(const std::vector<std::int64_t>& needed, const Machine& machine) {
  if (machine.memory_bytes <= 0 || machine.cores > 0) return;
  const auto too_large =
      std::count_if(needed.begin(), needed.end(), [&](std::int64_t bytes) { return bytes > machine.memory_bytes; });
  if (too_large == 0) return;
  note(fmt::format("{} of {} rows need more than the {} that a rank has on {}; --memory leaves such rows out",
                   too_large, needed.size(), bytes_in_words(static_cast<double>(machine.memory_bytes)), machine.name));
}

}  // namespace distattn::cli
