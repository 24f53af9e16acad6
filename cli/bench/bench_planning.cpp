#include "cli/bench/bench_planning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "cli/terminal/console.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"
#include "distattn/plan.hpp"

namespace distattn::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Distribution distribution_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) {
    return seconds[index(std::lround(share * static_cast<double>(seconds.size() - 1)))];
  };
  return {seconds.front(), at(0.5), at(0.9), seconds.back()};
}

/// What a schedule takes for several problems: to be chosen, and to be made and proved once it is.
void time_plans(const std::vector<Problem>& packings, int ranks, const ScheduleRequest& request,
                std::vector<PlanningRow>& rows) {
  std::vector<double> choosing, making;
  for (const Problem& problem : packings) {
    const auto start = Clock::now();
    const ScheduleRequest decision = or_refuse(with_options_named(decided(problem, ranks, request)));
    choosing.push_back(seconds_since(start));
    const auto decided_at = Clock::now();
    or_refuse(with_options_named(plan(problem, ranks, decision)));
    making.push_back(seconds_since(decided_at));
  }
  for (auto& [part, seconds] : {std::pair{"choosing", &choosing}, {"making", &making}}) {
    rows.push_back({request.schedule, part, ranks, static_cast<int>(packings.size()), packings.front().seq_q,
                    distribution_of(std::move(*seconds))});
  }
}

}  // namespace

std::vector<PlanningRow> planning_rows(const BenchRequest& request, int packings) {
  if (request.problem.common.mask.documents.empty()) {
    refuse("--planning without --documents (packings are drawn from a corpus): add --documents");
  }
  if (!request.problem.masks_together.empty()) {
    refuse("--planning with several --mask (it times plans of one mask): give one");
  }
  const Machine machine = machine_of(request.schedule);
  std::vector<PlanningRow> rows;
  for (const ProblemOptions& shape : combinations(request.problem)) {
    std::vector<ProblemOptions> drawn(index(packings), shape);
    for (std::size_t i = 0; i < drawn.size(); ++i) drawn[i].seed += i;
    const Problems problems = problems_of(drawn);
    for (const std::int64_t ranks : request.schedule.ranks) {
      for (const std::string& name : names_of(request.schedule, problems.all.front(), static_cast<int>(ranks))) {
        const Passes passes = request.backward ? Passes::both : Passes::forward;
        time_plans(problems.all, static_cast<int>(ranks), request_of(request.schedule, name, passes, machine), rows);
      }
    }
  }
  note(fmt::format("planned for {}: {}", machine.name, describe_age(machine)));
  return rows;
}

}  // namespace distattn::cli
