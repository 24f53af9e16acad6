#include <fmt/format.h>

#include <algorithm>

#include "command.hpp"
#include "console.hpp"
#include "distattn/error.hpp"
#include "distattn/plan.hpp"
#include "output.hpp"
#include "prepared.hpp"
#include "problem_options.hpp"
#include "schedule_options.hpp"

namespace distattn::cli {
namespace {

struct PlanOptions {
  ProblemOptions problem;
  ScheduleOptions schedule;
  bool backward = false, json = false;
};

struct Row {
  PassPlan plan;
  std::int64_t seq = 0;
};

/// A schedule that does not apply, and why.
struct Skipped {
  std::string name, reason;
  int ranks = 1;
};

struct Rows {
  std::vector<Row> rows;
  std::vector<Skipped> skipped;
};

/// Both passes of one schedule, or the reason why it does not apply.
void add_plans(const std::string& name, const Problem& problem, int ranks, const PlanOptions& options, Rows& rows) {
  const auto resolved = resolve_pair(name, problem, ranks);
  if (const auto* reason = std::get_if<std::string>(&resolved)) {
    rows.skipped.push_back({name, *reason, ranks});
    return;
  }
  const auto& pair = std::get<RecipePair>(resolved);
  const Routes routes = routes_of(options.schedule);
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (pass == Pass::backward && !options.backward) break;
    const Recipe& recipe = pass == Pass::forward ? pair.forward : pair.backward;
    const auto tiles = std::make_shared<const Tiles>(shard(problem, ranks, recipe.layout, recipe.groups));
    PassPlan plan = plan_pass(recipe, tiles, pass, options.schedule.mode.value_or(recipe.mode), routes);
    plan.schedule = name_of(pair);
    rows.rows.push_back({std::move(plan), problem.seq_q});
  }
}

bool too_large(const Row& row, const PlanOptions& options) {
  return options.schedule.memory_bytes && largest(row.plan.report.counts.memory_bytes) > *options.schedule.memory_bytes;
}

/// Forward before backward; then by predicted time where there is one, bytes of the busiest rank, bytes, name.
bool better(const Row& a, const Row& b) {
  const auto key = [](const Row& row) {
    const Counts& counts = row.plan.report.counts;
    return std::tuple(row.seq, row.plan.ranks, row.plan.pass,
                      std::isfinite(row.plan.predicted_s) ? row.plan.predicted_s : 0.0, largest(counts.bytes_sent),
                      mean(counts.bytes_sent), row.plan.schedule);
  };
  return key(a) < key(b);
}

Rows plan_all(const PlanOptions& options) {
  Rows rows;
  const Passes passes = options.backward ? Passes::both : Passes::forward;
  if (options.problem.seq.empty()) refuse("--seq is missing (the shape is not complete) add it");
  for (const std::int64_t seq : options.problem.seq) {
    const Problem problem =
        problem_of(options.problem, shape_of(options.problem, seq), options.problem.dtype.value_or(DType::fp32));
    for (const std::int64_t count : options.schedule.ranks) {
      const int ranks = static_cast<int>(count);
      for (std::string name : names_of(options.schedule, problem, ranks)) {
        if (name == "auto") name = attention_options(name, problem, ranks, 1, options.schedule, passes).schedule;
        add_plans(name, problem, ranks, options, rows);
      }
    }
  }
  std::erase_if(rows.rows, [&](const Row& row) {
    if (!too_large(row, options)) return false;
    rows.skipped.push_back({row.plan.schedule, "needs more than --memory", row.plan.ranks});
    return true;
  });
  std::stable_sort(rows.rows.begin(), rows.rows.end(), better);
  return rows;
}

Json json_of(const Row& row) {
  const PassPlan& plan = row.plan;
  const Counts& counts = plan.report.counts;
  Json json = versioned_object();
  json["schedule"] = plan.schedule;
  json["pass"] = name_of(plan.pass);
  json["mode"] = name_of(plan.mode);
  json["ranks"] = plan.ranks;
  json["seq"] = row.seq;
  json["steps"] = counts.steps;
  json["messages"] = counts.messages;
  json["messages_coalesced"] = counts.messages_coalesced;
  json["tiles"] = counts.tiles;
  json["bytes_sent_max"] = largest(counts.bytes_sent);
  json["bytes_sent_mean"] = mean(counts.bytes_sent);
  json["bytes_far_max"] = largest(counts.bytes_far);
  json["bytes_far_mean"] = mean(counts.bytes_far);
  json["idle_ideal"] = plan.idle_ideal;
  json["peak_remote_values"] = largest(counts.peak_remote_values);
  json["peak_remote_bytes"] = largest(counts.peak_remote_bytes);
  json["memory_bytes"] = largest(counts.memory_bytes);
  json["predicted_s"] = number_or_null(plan.predicted_s);
  json["proved"] = plan.report.proved();
  return json;
}

std::string text_of(const std::vector<Row>& rows) {
  Columns columns({"schedule", "pass", "ranks", "seq", "predicted", "steps", "messages", "sent max", "sent mean",
                   "idle", "peak remote", "memory", "proof"});
  for (const Row& row : rows) {
    const PassPlan& plan = row.plan;
    const Counts& counts = plan.report.counts;
    columns.add(
        {plan.schedule, name_of(plan.pass), fmt::format("{}", plan.ranks), fmt::format("{}", row.seq),
         seconds_text(plan.predicted_s), fmt::format("{}", counts.steps), fmt::format("{}", counts.messages),
         bytes_text(static_cast<double>(largest(counts.bytes_sent))), bytes_text(mean(counts.bytes_sent)),
         fmt::format("{:.4f}", plan.idle_ideal), bytes_text(static_cast<double>(largest(counts.peak_remote_bytes))),
         bytes_text(static_cast<double>(largest(counts.memory_bytes))), plan.report.proved() ? "proved" : "FAILED"});
  }
  return columns.text();
}

Outcome run_plan(const PlanOptions& options) {
  const auto [rows, skipped] = plan_all(options);
  if (rows.empty()) {
    const Skipped& first = skipped.front();
    refuse(fmt::format("{} does not apply to {} ranks ({}) choose another schedule or other ranks", first.name,
                       first.ranks, first.reason));
  }
  for (const auto& [name, reason, ranks] : skipped)
    note(fmt::format("skipped {} on {} ranks: {}", name, ranks, reason));
  if (options.json) {
    Json array = Json::array();
    for (const Row& row : rows) array.push_back(json_of(row));
    print_json(array);
  } else {
    print(text_of(rows));
  }
  bool proved = true;
  for (const Row& row : rows) {
    for (const Finding& finding : row.plan.report.findings) note(finding.message, Verbosity::quiet);
    proved = proved && row.plan.report.proved();
  }
  return proved ? Outcome::fine : Outcome::wrong_result;
}

}  // namespace

Command add_plan_command(CLI::App& root) {
  auto* const app = root.add_subcommand("plan", "What each schedule would cost, proved, without computing anything");
  const auto options = std::make_shared<PlanOptions>();
  options->schedule.schedules = {"all"};
  add_problem_options(*app, options->problem, Several::yes);
  add_seed_option(*app, options->problem)->needs("--documents");
  add_schedule_options(*app, options->schedule, Several::yes);
  app->add_flag("--backward", options->backward, "The backward pass too");
  app->add_flag("--json", options->json, "As a JSON array");
  return {app, [options] { return run_plan(*options); }};
}

}  // namespace distattn::cli
