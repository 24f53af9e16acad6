#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>

#include "cli/bench/bench_kernels.hpp"
#include "cli/bench/bench_planning.hpp"
#include "cli/bench/bench_report.hpp"
#include "cli/bench/bench_rows.hpp"
#include "cli/bench/bench_serving.hpp"
#include "cli/command.hpp"
#include "cli/options/option.hpp"
#include "cli/options/values.hpp"
#include "cli/run/agreement.hpp"
#include "cli/run/ranks.hpp"
#include "cli/run/sharded_run.hpp"
#include "cli/run/sink_logits.hpp"
#include "cli/terminal/console.hpp"
#include "cli/terminal/output.hpp"
#include "distattn/error.hpp"
#include "distattn/launch.hpp"
#include "distattn/machine.hpp"
#include "distattn/registry.hpp"

namespace distattn::cli {
namespace {

constexpr std::array<std::string_view, 3> forms = {"md", "csv", "json"};
constexpr std::int64_t most_runs = 1'000'000, largest_tile = 1 << 16;

struct BenchOptions {
  BenchRequest request;
  std::vector<std::string> kernels;
  int planning = 0;  ///< packings that are planned; 0: none
  ServingRequest serving;
  BenchForm form = BenchForm::fitting;
  Gates gates;
  bool json = false;
};

/// A problem with the shape that is measured where there is no schedule: whatever the options leave open is small.
Problem kernel_problem(ProblemOptions completed) {
  if (!completed.heads) completed.heads = completed.kv_heads.value_or(4);
  if (!completed.head_dim) completed.head_dim = 64;
  completed.mask = {};
  completed.seq_kv.reset();
  completed.batch.reset();
  return problem_of(completed, shape_of(completed, 64), completed.dtype.value_or(DType::fp32));
}

CalibrationOptions calibration_options(const BenchOptions& options) {
  const Problem problem = kernel_problem(combinations(options.request.problem).front());
  CalibrationOptions calibration;
  calibration.backend = choose_backend(options.request.launch, problem, Passes::forward);
  calibration.device = options.request.launch.device_options(1);
  calibration.heads = problem.heads;
  calibration.kv_heads = problem.kv_heads;
  calibration.head_dim = problem.head_dim;
  calibration.value_dim = problem.value_dim;
  return calibration;
}

/// Measures this machine with all ranks of `world`; rank 0 stores what it is. Collective.
Calibration calibrate_here(World& world, const BenchOptions& options) {
  said_by_first(world, [] {
    require_calibration_folder();
    return std::string();
  });
  Progress progress;
  Calibration calibration;
  decided_by_all(world, [&] { calibration.options = calibration_options(options); });
  if (world.size() > 1 && !world.in_process()) calibration.options.others = &world;
  calibration.measurements =
      calibrate(calibration.options, [&](const std::string& next) { progress.show("calibrating: " + next); });
  said_by_first(world, [&] {
    store(calibration.measurements);
    return std::string();
  });
  progress.done();
  note("stored in " + calibration_file().string());
  return calibration;
}

void print_as(BenchForm form, const std::string& text) { form == BenchForm::fitting ? print(text) : print_data(text); }

Outcome bench_kernels(const BenchOptions& options, BenchForm form) {
  const ProblemOptions shape = only_combination(options.request.problem, "kernels are timed for one shape at a time");
  KernelRequest request{options.kernels, options.request.problem.seq, calibration_options(options)};
  if (request.tiles.empty()) request.tiles = {64, 128, 256, 512, 1024, 2048};
  for (const std::int64_t tile : request.tiles) within("--seq", tile, 1, largest_tile);
  request.options.dtypes = {shape.dtype.value_or(DType::fp32)};
  request.options.runs = options.request.runs;
  Peaks peaks;
  const std::vector<KernelRow> rows = kernel_rows(request, peaks);
  print_as(form, text_of(rows, form));
  return judge_variants(rows);
}

/// Refuses an option that is given but not among those that count.
void refuse_others(const App& app, std::span<const std::string_view> honoured, const std::string& why) {
  for (const Option* const option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || std::find(honoured.begin(), honoured.end(), name) != honoured.end()) continue;
    refuse(fmt::format("{} {}", name, why));
  }
}

constexpr const char* without_rows =
    "with --calibrate alone (no row is measured without --seq): add --seq, or leave it out";

/// Options that only ranks in other processes make sense of, where this process alone is calibrated.
void check_meeting(const App& app, const World& world) {
  if (!world.in_process()) return;
  for (const char* const option : {"--ranks", "--bootstrap", "--transport", "--timeout"}) {
    if (app.count(option) > 0) refuse(fmt::format("{} {}", option, without_rows));
  }
}

/// Options that what is measured would ignore, depending on others.
void check_honoured(const App& app, const BenchOptions& options) {
  static constexpr std::array<std::string_view, 15> calibrating = {
      "--calibrate", "--heads",    "--kv-heads",      "--head-dim",  "--value-dim",
      "--backend",   "--provider", "--deterministic", "--graphs",    "-o",
      "--json",      "--ranks",    "--bootstrap",     "--transport", "--timeout"};
  static constexpr std::array<std::string_view, 11> moving = {
      "--kernel",   "--heads",         "--kv-heads", "--head-dim", "--value-dim", "--backend",
      "--provider", "--deterministic", "-n",         "-o",         "--json"};
  if (options.request.calibrate && options.request.problem.seq.empty()) {
    if (app.count("-o") > 0 && options.form == BenchForm::csv) {
      refuse("-o csv with --calibrate alone (without --seq there are no rows): add --seq, or choose md or json");
    }
    refuse_others(app, calibrating, without_rows);
    only_combination(options.request.problem, "a calibration is of one shape");
  }
  const auto attends = [](const std::string& kernel) { return kernel.starts_with("attend"); };
  if (options.kernels.empty() || std::any_of(options.kernels.begin(), options.kernels.end(), attends)) return;
  refuse_others(app, moving,
                fmt::format("with --kernel {} (which moves fp32 of sizes of its own): leave it out, or add attend",
                            fmt::join(options.kernels, ",")));
}

/// Kernels are timed on all cores of this process, which others would use as well.
void check_alone(const ComputeOptions& launch) {
  const World world({"", "", 0, launch.timeout_s});
  if (world.in_process() || world.size() == 1) return;
  refuse(fmt::format("--kernel in {} processes (started by {}; kernels are timed on the cores of one): start one",
                     world.size(), world.bootstrap()));
}

/// The rows, and the machine that they were predicted on. Collective.
Outcome bench_schedules(World& world, const BenchOptions& options, BenchForm form) {
  Peaks peaks;
  const std::vector<BenchRow> rows = bench_rows(world, options.request, peaks);
  print_as(form, text_of(rows, form));
  const Machine machine = machine_of(world, options.request.schedule);
  note(fmt::format("predicted on {}, {}: {}", machine.name, describe_age(machine), worst_ratios(rows)));
  Outcome outcome = Outcome::fine;
  if (world.first() == 0) outcome = judge(rows, options.gates);
  return world.broadcast(outcome == Outcome::fine ? "fine" : "") == "fine" ? Outcome::fine : Outcome::wrong_result;
}

Outcome bench(const App& app, World& world, BenchOptions options, BenchForm form) {
  rank_counts(world, options.request.schedule.ranks);  // refuses
  agree_on_command(world, command_text(options.request));
  if (options.request.calibrate) {
    if (options.request.problem.seq.empty()) check_meeting(app, world);
    options.request.calibration = calibrate_here(world, options);
    if (options.request.problem.seq.empty()) {
      if (world.first() != 0) return Outcome::fine;
      const Machine machine = find_machine("this");
      print_as(form, form == BenchForm::json ? to_json(machine) + "\n"
                                             : text_of(machine, options.request.calibration->options.head_dim));
      return Outcome::fine;
    }
  }
  return bench_schedules(world, options, form);
}

Outcome bench_serving(World& world, const BenchOptions& options, BenchForm form) {
  rank_counts(world, options.request.schedule.ranks);  // refuses
  agree_on_command(world, fmt::format("{}; {} requests, pages of {}", command_text(options.request),
                                      options.serving.mix.requests.size(), options.serving.page));
  Peaks peaks;
  const std::vector<ServingRow> rows = serving_rows(world, options.request, options.serving, peaks);
  print_as(form, text_of(rows, form));
  return judge(rows);
}

Outcome bench(const App& app, const BenchOptions& options) {
  const BenchForm form = options.json ? BenchForm::json : options.form;
  if (!options.serving.mix.requests.empty()) {
    return with_rank_counts(options.request.launch, options.request.schedule.ranks,
                            [&](World& world) { return bench_serving(world, options, form); });
  }
  if (!options.kernels.empty()) {
    check_alone(options.request.launch);
    return bench_kernels(options, form);
  }
  if (options.planning > 0) {
    print_as(form, text_of(planning_rows(options.request, options.planning), form));
    return Outcome::fine;
  }
  return with_rank_counts(options.request.launch, options.request.schedule.ranks,
                          [&](World& world) { return bench(app, world, options, form); });
}

double parse_positive(std::string_view option, std::string_view text) {
  const double value = parse_number(option, text);
  if (value <= 0) refuse(fmt::format("{} {} (not above 0): give a positive number", option, text));
  return value;
}

void add_gates(App& app, BenchOptions& options) {
  add_value(app, "--min-gflops", options.gates.least_gflops, parse_positive, "Exit 1 when a row computes slower",
            "NUMBER", rarely(Group::output));
  add_value(app, "--max-ratio-to-prediction", options.gates.most_ratio, parse_positive,
            "Exit 1 when a row takes this many times its prediction", "NUMBER", rarely(Group::output));
}

/// What --kernel takes.
std::vector<std::string> kernel_words() {
  std::vector<std::string> words = kernel_names();
  words.insert(words.begin(), "all");
  return words;
}

/// Nothing runs, so that what concerns runs is refused.
void add_planning(App& app, BenchOptions& options) {
  const auto parse = [](std::string_view option, std::string_view text) {
    return static_cast<int>(within(option, parse_size(option, text), 1, most_runs));
  };
  auto* const planning =
      add_value(app, "--planning", options.planning, parse,
                "Instead of runs, time plans of this many drawn packings (--documents)", "N", rarely(Group::problem));
  for (const char* const other :
       {"--backend", "--provider", "--deterministic", "--graphs", "--threads", "--check", "-n", "-w", "--calibrate",
        "--min-gflops", "--max-ratio-to-prediction", "--transport", "--bootstrap", "--timeout"})
    planning->excludes(app.get_option(other));
}

/// `option` stands with those alone that `honoured` names.
void exclude_all_but(App& app, Option& option, std::span<const std::string_view> honoured) {
  for (const Option* const other : app.get_options()) {
    const std::string name = other->get_name();
    const bool fits = other == &option || other->asks_for_help() ||
                      std::find(honoured.begin(), honoured.end(), name) != honoured.end();
    if (!fits) option.excludes(app.get_option(name));
  }
}

/// Nothing is planned, so that what concerns schedules and masks is refused.
void add_serving(App& app, BenchOptions& options) {
  OptionChoices mixes = choices_of(mix_names());
  mixes.push_back(any_file("FILE"));
  auto* const serving = add_value(app, "--serving", options.serving.mix, parse_mix,
                                  "Instead of schedules, serve a mix of requests, by name or listed in a file",
                                  one_of(mixes), rarely(Group::problem));
  const auto parse_page = [](std::string_view option, std::string_view text) {
    const std::int64_t page = within(option, parse_size(option, text), 0, 4096);
    if (page % 16 != 0) refuse(fmt::format("{} {} (pages hold a multiple of 16 tokens): give one, or 0", option, text));
    return page;
  };
  static constexpr std::array<std::string_view, 19> honoured = {
      "--heads",     "--kv-heads",  "--head-dim", "--value-dim", "--dtype", "--seed", "--backend",
      "--threads",   "--ranks",     "-n",         "-w",          "--check", "-o",     "--json",
      "--bootstrap", "--transport", "--timeout",  "--page",      "--layout"};
  exclude_all_but(app, *serving, honoured);
  add_value(app, "--page", options.serving.page, parse_page,
            "With --serving: tokens of a page, 0 for caches without pages (default 64)", "TOKENS",
            rarely(Group::problem))
      ->needs(serving);
}

void add_kernels(App& app, BenchOptions& options) {
  const auto parse_kernels = [](std::string_view option, std::string_view text) {
    const auto known = kernel_words();
    const std::vector<std::string_view> words(known.begin(), known.end());
    auto names = parse_list(option, text);
    for (const std::string& name : names) parse_word(option, name, words);
    return std::find(names.begin(), names.end(), "all") == names.end() ? names : kernel_names();
  };
  auto* const kernel =
      add_value(app, "--kernel", options.kernels, parse_kernels, "Single kernels on all cores, tiles of --seq tokens",
                some_of(kernel_words()), rarely(Group::problem));
  static constexpr std::array<std::string_view, 12> honoured = {
      "--seq",     "--heads",    "--kv-heads",      "--head-dim", "--value-dim", "--dtype",
      "--backend", "--provider", "--deterministic", "-n",         "-o",          "--json"};
  exclude_all_but(app, *kernel, honoured);
}

}  // namespace

Command add_bench_command(App& root) {
  auto* const app =
      root.add_subcommand("bench", "How fast schedules run, compared with the machine's peak and the prediction");
  const auto options = std::make_shared<BenchOptions>();
  BenchRequest& request = options->request;
  const auto parse_runs = [](std::string_view option, std::string_view text) {
    return static_cast<int>(within(option, parse_size(option, text), option == "-w" ? 0 : 1, most_runs));
  };
  add_problem_options(*app, request.problem);
  add_sink_logits_option(*app, request.problem.common.sink_logits);
  add_seed_option(*app, request.problem.common);
  add_schedule_options(*app, request.schedule, Several::yes);
  request.schedule.ranks.clear();  // as many as the launcher started, or 1
  add_launch_options(*app, request.launch);
  app->add_flag("--backward", request.backward, "Forward, then backward", Group::problem);
  add_value(*app, "-n", request.runs, parse_runs, "Measured runs (default 10)", "N", Group::output);
  add_value(*app, "-w", request.warmups, parse_runs, "Warm-up runs before them (default 2)", "N", Group::output);
  app->add_flag("-c,--check", request.check, "Compare with float64; exit 1 past the tolerance", Group::output);
  add_machine_option(*app, request.schedule);
  app->add_flag(
         "--calibrate", request.calibrate,
         "Measure this machine first (between processes also their links), store its description, and measure it again "
         "around every row",
         Group::device)
      ->excludes(app->get_option("--machine"));
  add_gates(*app, *options);
  const auto parse_form = [](std::string_view option, std::string_view text) {
    return static_cast<BenchForm>(parse_word(option, text, forms));
  };
  auto* const form = add_value(*app, "-o", options->form, parse_form, "As Markdown, CSV or JSON (default md)",
                               one_of(forms), Group::output);
  app->add_flag("--json", options->json, "As a JSON array: -o json", Group::output)->excludes(form);
  add_planning(*app, *options);
  add_serving(*app, *options);
  add_kernels(*app, *options);
  return {app, [app, options] {
            check_honoured(*app, *options);
            if (options->planning > 0) take_launched_ranks(*app, options->request.schedule);
            return bench(*app, *options);
          }};
}

}  // namespace distattn::cli
