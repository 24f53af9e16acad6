#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "cli/command.hpp"
#include "cli/options/option.hpp"
#include "cli/options/problem_lists.hpp"
#include "cli/options/values.hpp"
#include "cli/rows/tables.hpp"
#include "cli/rows/validation.hpp"
#include "cli/run/agreement.hpp"
#include "cli/run/check.hpp"
#include "cli/run/prepared.hpp"
#include "cli/run/ranks.hpp"
#include "cli/run/sharded_run.hpp"
#include "cli/run/sink_logits.hpp"
#include "cli/terminal/console.hpp"
#include "cli/terminal/terminal.hpp"
#include "cli/validate/validate_cases.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"
#include "distattn/registry.hpp"

namespace distattn::cli {
namespace {

struct ValidateOptions {
  ProblemLists problem;
  ScheduleOptions schedule;
  std::vector<std::string> backends;
  ComputeOptions launch;  // backends are several here
  bool backward = false, json = false;
};

/// A schedule on some ranks for one problem: proved, or why not.
struct Case {
  Problem problem;
  std::string schedule;
  std::optional<Mode> mode;  ///< that was asked for
  int ranks = 1;
  SharedPlan plan;  ///< null: the proof failed
  std::string failure;
};

/// Problems of the command line; without a shape, the usual ones.
Problems problems_of(const ValidateOptions& options) {
  if (options.problem.is_empty()) return {usual_problems(), {}};
  std::vector<ProblemOptions> each = combinations(options.problem);
  for (ProblemOptions& completed : each) {
    if (!completed.seq) completed.seq = 61;
    if (!completed.heads) completed.heads = completed.kv_heads.value_or(6);
    if (!completed.head_dim) completed.head_dim = 16;
  }
  return problems_of(each);
}

/// Ranks that the `i`-th problem is tried on: those that a launcher started; all that were asked for; without being
/// asked every third, so that each schedule meets each number of ranks with several problems, and still ends within a
/// minute.
std::vector<int> ranks_of(const World& world, const ValidateOptions& options, std::size_t i) {
  if (world.size() > 1 || !options.schedule.ranks.empty()) return rank_counts(world, options.schedule.ranks);
  std::vector<int> ranks;
  for (int count = 1; count <= 8; ++count) {
    if (!options.problem.is_empty() || (index(count) + i) % 3 == 0) ranks.push_back(count);
  }
  return ranks;
}

/// Notes once what does not apply.
class Skips {
 public:
  void add(const std::vector<std::string>& what_and_why) {
    for (const std::string& line : what_and_why) note("skipped " + line);
  }
  void add(const std::string& what, const std::string& reason) {
    const std::string line = fmt::format("skipped {}: {}", what, reason);
    if (noted_.insert(line).second) note(line);
    if (std::find(reasons_.begin(), reasons_.end(), reason) == reasons_.end()) reasons_.push_back(reason);
  }
  /// For who has silenced the notes: the first reason, and how many others there are.
  std::string reasons() const {
    if (reasons_.empty()) return "";
    const std::string others = reasons_.size() > 1 ? fmt::format(", and {} other reasons", reasons_.size() - 1) : "";
    return fmt::format(": {}{}", reasons_.front(), others);
  }

 private:
  std::set<std::string> noted_;
  std::vector<std::string> reasons_;
};

/// Proves a schedule on all ranks of a world, for masks on one layout: a case each. What has no plan is skipped, unless
/// its proof failed.
std::vector<Case> prove(World& ranks, const std::string& name, const std::vector<LayerKind>& kinds,
                        const ScheduleOptions& schedule, Skips& skips) {
  std::vector<Case> cases;
  for (const LayerKind& kind : kinds) cases.push_back({kind.problem, name, schedule.mode, ranks.size(), nullptr, ""});
  auto prepared = try_to_prepare(ranks, name, kinds, 1, schedule, Passes::both);
  if (const auto* const why = std::get_if<WhyNot>(&prepared)) {
    for (Case& made : cases) made.failure = why->message;
    if (why->kind == WhyNot::Kind::not_proved) return cases;
    skips.add(fmt::format("{} on {} ranks", name, ranks.size()), why->reason);
    return {};
  }
  for (std::size_t k = 0; k < cases.size(); ++k) cases[k].plan = std::get<std::vector<SharedPlan>>(prepared)[k];
  return cases;
}

std::vector<Case> prove_all(World& world, const ValidateOptions& options, const std::vector<Problem>& problems,
                            Skips& skips) {
  const std::vector<ScheduleOptions> modes = each_mode(on_nodes_of(world, options.schedule));
  std::vector<Case> cases;
  Progress progress;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const std::vector<LayerKind> kinds = kinds_of(problems[i], options.problem);
    for (const int ranks : ranks_of(world, options, i)) {
      for (const std::string& name : names_of(options.schedule, problems[i], ranks)) {
        for (const ScheduleOptions& schedule : modes) {
          progress.show(fmt::format("proved {}: {} on {} ranks", cases.size(), name, ranks));
          for (Case& made : prove(WorldOf(world, ranks).get(), name, kinds, schedule, skips))
            cases.push_back(std::move(made));
        }
      }
    }
  }
  return cases;
}

/// Why this machine cannot try a case; nothing if it can. Ranks that are processes end together instead.
std::string why_no_memory(World& world, const Case& made) {
  if (made.plan == nullptr || !world.in_process()) return "";
  try {
    check_memory(WorldOf(world, made.ranks).get(), *made.plan, Passes::both);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

ValidationRow row_of(const Case& made, const std::string& backend, Pass pass) {
  ValidationRow row;
  row.schedule = made.schedule;
  row.pass = pass;
  row.ranks = made.ranks;
  row.backend = backend;
  row.problem = describe(made.problem);
  row.proved = made.plan != nullptr;
  if (!row.proved) {
    row.failure = made.failure;
    return row;
  }
  const Counts& counts = made.plan->counts(pass);
  row.mode = made.plan->outline(pass).mode;
  row.steps = counts.steps;
  row.bytes_sent_max = largest(counts.bytes_sent);
  return row;
}

/// Runs a proved case on a backend and compares both passes with the oracle.
std::array<ValidationRow, 2> run_case(World& world, const Case& made, const std::string& backend,
                                      const ValidateOptions& options) {
  std::array rows{row_of(made, backend, Pass::forward), row_of(made, backend, Pass::backward)};
  if (made.plan == nullptr) return rows;
  Inputs inputs = Inputs::random(made.problem, options.problem.common.seed);
  inputs.set_dropout_seed(options.problem.common.dropout_seed);
  bring_sink_logits(inputs, options.problem.common.sink_logits, made.problem.dtype, options.problem.common.seed);
  WorldOf ranks(world, made.ranks);
  try {
    const RunResult result =
        run_sharded(ranks.get(), made.plan, inputs,
                    {.backend = backend,
                     .device = {.threads = choose_threads(options.launch.device.threads, ranks.get())},
                     .tensors = TensorPlace::host});
    const Errors errors = check_results(ranks.get(), *made.plan, inputs, result.ranks, Passes::both);
    for (ValidationRow& row : rows) {
      row.error = errors.largest(row.pass);
      row.tolerance = errors.tolerance;
      if (!errors.within_tolerance(row.pass)) row.wrong = text_of(errors.worst(row.pass));
    }
  } catch (const Error& error) {
    if (!ranks.get().in_process()) throw;  // it has ended the run of the other processes
    for (ValidationRow& row : rows) row.failure = error.what();
  }
  return rows;
}

std::string text_of(const ValidationRow& row, std::optional<Mode> asked) {
  const std::string name = asked ? fmt::format("{}, {}", row.schedule, name_of(*asked)) : row.schedule;
  std::string text =
      fmt::format("{:<18} P={} {:<10} {:<8} {:<46}", name, row.ranks, row.backend, name_of(row.pass), row.problem);
  if (row.failure) return fmt::format("{} FAILED: {}", text, *row.failure);
  return fmt::format("{} {:>9} bytes {:>3} steps  error {:.1e}  tolerance {:.1e}  {}", text, *row.bytes_sent_max,
                     *row.steps, row.error, row.tolerance, row.ok() ? "ok" : "WRONG: " + *row.wrong);
}

std::vector<std::string> backends_of(const ValidateOptions& options) {
  if (!options.backends.empty()) return options.backends;
  std::vector<std::string> names;
  for (const BackendInfo& known : known_backends(BackendKind::device)) {
    const BackendInfo info = find_backend(BackendKind::device, known.name).value();
    if (!info.usable && !info.misconfigured) continue;
    make_device(info.name, {1, 1});  // refuses one that is misconfigured
    names.push_back(info.name);
  }
  return names;
}

/// What must be the same on all ranks for them to go through the same cases.
std::string command_text(const ValidateOptions& options, const std::vector<Problem>& problems) {
  std::string text = fmt::format("{}{} on {}", fmt::join(options.schedule.schedules, ","), given_text(options.schedule),
                                 fmt::join(backends_of(options), ","));
  for (const Problem& problem : problems) text += "; " + describe(problem);
  return text + text_of(options.problem.masks_together);
}

Outcome validate(World& world, const ValidateOptions& options) {
  rank_counts(world, options.schedule.ranks);  // refuses
  const Problems problems = problems_of(options);
  agree_on_command(world, command_text(options, problems.all));
  machine_of(world, options.schedule);  // one that cannot be read is no reason to skip schedules
  Skips skips;
  skips.add(problems.skipped);
  const std::vector<Case> cases = prove_all(world, options, problems.all, skips);
  int passed = 0, failed = 0;
  std::vector<ValidationRow> rows;
  Progress progress;
  for (const std::string& backend : backends_of(options)) {
    const auto device = make_device(backend, {1, 1});
    for (const Case& made : cases) {
      std::string why = device->why_not(made.problem, Pass::backward);
      if (why.empty()) why = why_no_memory(world, made);
      if (!why.empty()) {
        skips.add(fmt::format("{} on {}", describe(made.problem), backend), why);
        continue;
      }
      progress.show(fmt::format("{} passed, {} failed: {} on {} ranks of {}, {}", passed, failed, made.schedule,
                                made.ranks, backend, describe(made.problem)));
      for (ValidationRow& row : run_case(world, made, backend, options)) {
        ++(row.ok() ? passed : failed);
        progress.done();
        if (!options.json) print(printable(text_of(row, made.mode)) + "\n");
        rows.push_back(std::move(row));
      }
    }
  }
  if (rows.empty())
    refuse(fmt::format("no case is left (every one was skipped{}): choose other values", skips.reasons()));
  if (options.json) {
    print_json(rows_json(rows));
  } else {
    print(fmt::format("{} passed, {} failed\n", passed, failed));
  }
  return failed == 0 ? Outcome::fine : Outcome::wrong_result;
}

std::vector<std::string> parse_backends(std::string_view option, std::string_view text) {
  auto names = parse_list(option, text);
  for (const std::string& name : names) make_device(name, {1, 1});  // refuses what is unknown or not usable
  return names;
}

}  // namespace

Command add_validate_command(App& root) {
  auto* const app = root.add_subcommand("validate", "Schedules, ranks, masks, shapes and backends against float64");
  const auto options = std::make_shared<ValidateOptions>();
  options->schedule.schedules = {"all"};
  options->schedule.ranks.clear();  // 1 to 8
  add_problem_options(*app, options->problem);
  add_sink_logits_option(*app, options->problem.common.sink_logits);
  add_seed_option(*app, options->problem.common);
  add_schedule_options(*app, options->schedule, Several::yes);
  add_machine_option(*app, options->schedule);
  add_to_help(*app, "--ranks", " (default 1 to 8)");
  // Without any shape, element type or mask there are many of each.
  for (const auto& [option, usual] : {std::pair("--seq", "61"), {"--heads", "6"}, {"--head-dim", "16"}}) {
    add_to_help(*app, option, std::string(" (default: several, or ") + usual + " if a shape, type or mask is given)");
  }
  add_value(*app, "--backend", options->backends, parse_backends, "What computes (default: all that are usable)",
            known_names(BackendKind::device, ","), Group::device);
  add_threads_option(*app, options->launch);
  add_meeting_options(*app, options->launch);
  app->add_flag("--backward", options->backward, "Has no effect: validate always checks both passes",
                rarely(Group::problem));
  app->add_flag("--json", options->json, "As a JSON array", Group::output);
  return {app, [options] {
            return with_rank_counts(options->launch, options->schedule.ranks,
                                    [&](World& world) { return validate(world, *options); });
          }};
}

}  // namespace distattn::cli
