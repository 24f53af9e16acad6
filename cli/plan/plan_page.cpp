#include "cli/plan/plan_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "cli/run/written_files.hpp"
#include "distattn/plan.hpp"

namespace distattn::cli {
namespace {

constexpr std::size_t most_schedules = 8;

/// Rows of one schedule, a pass each.
struct Drawable {
  std::vector<std::size_t> rows;
  double seconds = 0;
  std::size_t place = 0;  ///< among those of its problem and ranks, best first
};

std::vector<Drawable> drawable(const std::vector<PlanRow>& rows) {
  using Setting = std::pair<std::size_t, int>;  // the problem and the ranks
  std::map<std::tuple<std::size_t, std::size_t, std::size_t, int, std::string, int, int, std::string>, std::size_t>
      known;
  std::vector<Drawable> all;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const PassPlan& plan = rows[i].plan;
    const auto [found, is_new] =
        known.try_emplace({rows[i].number, rows[i].together, rows[i].kind, plan.ranks, plan.schedule,
                           plan.routes.node_size, plan.routes.ahead, name_of(plan.mode)},
                          all.size());
    if (is_new) all.emplace_back();
    Drawable& of = all[found->second];
    // What auto chose and was asked for by its name too has each row twice.
    const bool is_known = std::any_of(of.rows.begin(), of.rows.end(),
                                      [&](std::size_t other) { return rows[other].plan.pass == plan.pass; });
    if (!is_known) of.seconds += rows[i].seconds();
    of.rows.push_back(i);
  }
  std::stable_sort(all.begin(), all.end(), [](const Drawable& a, const Drawable& b) { return a.seconds < b.seconds; });
  std::map<Setting, std::size_t> places;
  for (Drawable& each : all) {
    const PlanRow& row = rows[each.rows.front()];
    each.place = places[{row.number, row.plan.ranks}]++;
  }
  std::stable_sort(all.begin(), all.end(), [](const Drawable& a, const Drawable& b) { return a.place < b.place; });
  return all;
}

ScheduleRequest request_of(const PlanRow& row, const PlanRequest& asked, const Machine& machine) {
  ScheduleRequest request;
  request.schedule = row.plan.schedule;
  request.passes = asked.backward ? Passes::both : Passes::forward;
  if (asked.schedule.mode || !asked.schedule.modes.empty()) request.mode = row.plan.mode;
  request.node_size = row.plan.routes.node_size;
  if (row.plan.routes.node_size > 0) request.ahead = row.plan.routes.ahead;
  request.layout = row.layout;
  request.machine = machine;
  return request;
}

void add_to(Page& page, const PlanRow& row, const PlanRequest& request, const Machine& machine) {
  const int ranks = row.plan.ranks;
  const AttentionPlan plan = or_refuse(distattn::plan(*row.problem, ranks, request_of(row, request, machine)));
  std::vector<Schedule> schedules;
  std::vector<Timeline> timelines;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (!plan.has(pass)) continue;
    schedules.push_back(plan.schedule(pass));
    timelines.push_back(plan.predict(pass, machine, machine.threads_of_rank(ranks)));
  }
  std::vector<Drawing> drawings;
  for (std::size_t i = 0; i < schedules.size(); ++i)
    drawings.push_back({&schedules[i], {{"predicted", &timelines[i]}}});
  const int node_size = row.plan.routes.node_size;
  const bool both = request.routes == RouteKinds::both && machine.nodes > 1;
  const std::string mask = row.together > 0 ? ", " + row.problem->mask.name : "";
  page.add(row.plan.schedule + (both ? node_size > 0 ? " routed" : " straight" : "") + mask, drawings);
}

}  // namespace

std::string page_of(const PlanRows& rows, const PlanRequest& request, const Machine& machine, PageTable table) {
  Page page("planned on " + machine.name, Page::usual_bytes / 2);
  for (std::size_t i = 0; i < rows.rows.size(); ++i) table.rows[i].pass = rows.rows[i].plan.pass;
  for (const Drawable& each : drawable(rows.rows)) {
    if (page.schedules() == most_schedules || page.bytes() > Page::usual_bytes) break;
    for (const std::size_t row : each.rows) table.rows[row].schedule = page.schedules();
    add_to(page, rows.rows[each.rows.front()], request, machine);
  }
  note_coarser(page);
  return page.finish(table);
}

}  // namespace distattn::cli
