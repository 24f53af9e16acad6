#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <span>

#include "bench_kernels.hpp"
#include "bench_report.hpp"
#include "bench_rows.hpp"
#include "command.hpp"
#include "console.hpp"
#include "distattn/error.hpp"
#include "distattn/launch.hpp"
#include "distattn/registry.hpp"
#include "distattn/words.hpp"
#include "option.hpp"
#include "sharded_run.hpp"
#include "values.hpp"

namespace distattn::cli {
namespace {

constexpr std::array<std::string_view, 3> forms = {"md", "csv", "json"};
constexpr std::int64_t most_runs = 1'000'000, largest_tile = 1 << 16;

struct BenchOptions {
  BenchRequest request;
  std::vector<std::string> kernels;
  BenchForm form = BenchForm::md;
  std::optional<double> least_gflops, most_ratio;
  bool calibrate = false, json = false;
};

/// A problem with the shape that is measured where there is no schedule: whatever the options leave open is small.
Problem kernel_problem(const ProblemOptions& options) {
  ProblemOptions completed = options;
  if (!completed.heads) completed.heads = completed.kv_heads.value_or(4);
  if (!completed.head_dim) completed.head_dim = 64;
  completed.mask = {};
  completed.seq_kv.reset();
  completed.batch.reset();
  return problem_of(completed, shape_of(completed, 64), completed.dtype.value_or(DType::fp32));
}

CalibrationOptions calibration_options(const BenchOptions& options) {
  const Problem problem = kernel_problem(options.request.problem);
  CalibrationOptions calibration;
  calibration.backend = choose_backend(options.request.launch, problem, Passes::forward);
  calibration.provider = options.request.launch.provider;
  calibration.gradient_order = options.request.launch.gradient_order();
  calibration.heads = problem.heads;
  calibration.kv_heads = problem.kv_heads;
  calibration.head_dim = problem.head_dim;
  calibration.value_dim = problem.value_dim;
  return calibration;
}

/// Measures and stores this machine.
Calibration calibrate_here(const BenchOptions& options) {
  require_calibration_folder();
  Progress progress;
  Calibration calibration{calibration_options(options), {}};
  calibration.measurements =
      calibrate(calibration.options, [&](const std::string& next) { progress.show("calibrating: " + next); });
  store_calibration(describe(calibration.measurements));
  progress.done();
  note("stored in " + calibration_file().string());
  return calibration;
}

/// What a calibration measured, for people.
std::string text_of(const Machine& machine, int head_dim) {
  Columns columns({"tokens", "type", "pass", "full GFLOP/s", "causal GFLOP/s"});
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      const KernelRates& rates = machine.rates_of(dtype, pass);
      for (const RateCurve::Point& point : rates.full.points) {
        columns.add({fmt::format("{:.0f}", point.tile), name_of(dtype), name_of(pass),
                     fmt::format("{:.2f}", point.flops_per_s / 1e9),
                     fmt::format("{:.2f}", rates.partial.at(point.tile) / 1e9)});
      }
    }
  }
  return fmt::format(
      "{}, {} cores: {}\ncopies {}/s after {}, merges {}/s\na tile of one head {} forward, {} backward, a million "
      "pairs {}, {}, besides the products of those that blocks of {} queries meet; of one thread:\n{}",
      machine.name, machine.cores, describe_age(machine), bytes_in_words(machine.near.bytes_per_s),
      seconds_in_words(machine.near.latency_s), bytes_in_words(machine.memory_bytes_per_s),
      seconds_in_words(machine.tiles.seconds(Pass::forward, head_dim)),
      seconds_in_words(machine.tiles.seconds(Pass::backward, head_dim)),
      seconds_in_words(1e6 * machine.tiles.pair_s[0]), seconds_in_words(1e6 * machine.tiles.pair_s[1]),
      machine.tiles.block, columns.text());
}

/// The rows that are farthest from their prediction, of those that have one.
std::string worst_ratios(const std::vector<Json>& rows) {
  const Json *least = nullptr, *most = nullptr;
  const auto ratio = [](const Json* row) { return row->at("ratio_to_prediction").get<double>(); };
  for (const Json& row : rows) {
    if (row["ratio_to_prediction"].is_null()) continue;
    if (least == nullptr || ratio(&row) < ratio(least)) least = &row;
    if (most == nullptr || ratio(&row) > ratio(most)) most = &row;
  }
  if (least == nullptr) return "nothing is predicted";
  const auto text = [&](const Json* row) {
    return fmt::format("{:.2f} ({} {} on {} ranks)", ratio(row), row->at("schedule").get<std::string>(),
                       row->at("pass").get<std::string>(), row->at("ranks").get<int>());
  };
  return fmt::format("measured/predicted from {} to {}", text(least), text(most));
}

/// Says which rows miss a gate.
Outcome judge(const std::vector<Json>& rows, const BenchOptions& options) {
  Outcome outcome = Outcome::fine;
  const auto miss = [&](const Json& row, const std::string& why) {
    outcome = Outcome::wrong_result;
    print_error(fmt::format("{} {} on {} ranks, {} tokens: {}", row["schedule"].get<std::string>(),
                            row["pass"].get<std::string>(), row["ranks"].get<int>(), row["seq"].get<std::int64_t>(),
                            why));
  };
  for (const Json& row : rows) {
    if (row["ok"].is_boolean() && !row["ok"].get<bool>())
      miss(row, "wrong result (its error is beyond the tolerance) compare with --backend reference");
    if (options.least_gflops && row["gflops"].get<double>() < *options.least_gflops) {
      miss(row, fmt::format("{:.2f} GFLOP/s (--min-gflops {}) see whether the machine is busy",
                            row["gflops"].get<double>(), *options.least_gflops));
    }
    if (!options.most_ratio) continue;
    if (row["ratio_to_prediction"].is_null()) {
      miss(row,
           "no prediction (the machine states no rates of its type and backend) leave --max-ratio-to-prediction out");
    } else if (row["ratio_to_prediction"].get<double>() > *options.most_ratio) {
      miss(row,
           fmt::format("{:.2f} times the prediction (--max-ratio-to-prediction {}) see whether the machine is busy",
                       row["ratio_to_prediction"].get<double>(), *options.most_ratio));
    }
  }
  return outcome;
}

/// Says which kernels are wrong. One that failed ends the command as it would have ended without the others.
Outcome judge_variants(const std::vector<Json>& rows) {
  const auto name_of_row = [](const Json& row) {
    return fmt::format("{}, {}, head dimension {}/{}, {}", row["variant"].get<std::string>(),
                       row["pass"].get<std::string>(), row["head_dim"].get<int>(), row["value_dim"].get<int>(),
                       row["coverage"].get<std::string>());
  };
  Outcome outcome = Outcome::fine;
  const Json* failed = nullptr;
  for (const Json& row : rows) {
    if (row["ok"] != false) continue;
    if (row["failure"].is_string()) {
      if (failed == nullptr) failed = &row;
      continue;
    }
    outcome = Outcome::wrong_result;
    print_error(
        fmt::format("{}: wrong result (its error is beyond the tolerance) leave this kernel out", name_of_row(row)));
  }
  if (failed == nullptr) return outcome;
  throw Error(ErrorKind::environment,
              fmt::format("{}: {}", name_of_row(*failed), (*failed)["failure"].get<std::string>()));
}

Outcome bench_kernels(const BenchOptions& options, BenchForm form) {
  KernelRequest request{options.kernels, options.request.problem.seq, calibration_options(options)};
  if (request.tiles.empty()) request.tiles = {64, 128, 256, 512, 1024, 2048};
  for (const std::int64_t tile : request.tiles) within("--seq", tile, 1, largest_tile);
  request.options.dtypes = {options.request.problem.dtype.value_or(DType::fp32)};
  request.options.runs = options.request.runs;
  Peaks peaks;
  const std::vector<Json> rows = kernel_rows(request, peaks);
  print(text_of(rows, form));
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

/// Options that what is measured would ignore, depending on others.
void check_honoured(const App& app, const BenchOptions& options) {
  static constexpr std::array<std::string_view, 10> calibrating = {
      "--calibrate", "--heads",    "--kv-heads",      "--head-dim", "--value-dim",
      "--backend",   "--provider", "--deterministic", "-o",         "--json"};
  static constexpr std::array<std::string_view, 11> moving = {
      "--kernel",   "--heads",         "--kv-heads", "--head-dim", "--value-dim", "--backend",
      "--provider", "--deterministic", "-n",         "-o",         "--json"};
  if (options.calibrate && options.request.problem.seq.empty()) {
    if (app.count("-o") > 0 && options.form == BenchForm::csv) {
      refuse("-o csv with --calibrate alone (without --seq there are no rows) add --seq, or choose md or json");
    }
    refuse_others(app, calibrating,
                  "with --calibrate alone (no row is measured without --seq) add --seq, or leave it out");
  }
  const auto attends = [](const std::string& kernel) { return kernel.starts_with("attend"); };
  if (options.kernels.empty() || std::any_of(options.kernels.begin(), options.kernels.end(), attends)) return;
  refuse_others(app, moving,
                fmt::format("with --kernel {} (which moves fp32 of sizes of its own) leave it out, or add attend",
                            fmt::join(options.kernels, ",")));
}

/// Several processes would each measure on the cores of all.
void check_alone(const LaunchOptions& launch) {
  if (!launch.bootstrap.empty() || !launch.transport.empty()) return;
  const World world({"", "", 0, launch.timeout_s});
  if (world.in_process() || world.size() == 1) return;
  refuse(
      fmt::format("{} processes were started by {} (the ranks of bench are threads of one) start one, or use run "
                  "with -n and -w",
                  world.size(), world.bootstrap()));
}

Outcome bench(BenchOptions options) {
  check_alone(options.request.launch);
  const BenchForm form = options.json ? BenchForm::json : options.form;
  if (!options.kernels.empty()) return bench_kernels(options, form);
  if (options.calibrate) {
    options.request.calibration = calibrate_here(options);
    const Machine machine = describe(options.request.calibration->measurements);
    if (options.request.problem.seq.empty()) {
      print(form == BenchForm::json ? to_json(machine) + "\n"
                                    : text_of(machine, options.request.calibration->options.head_dim));
      return Outcome::fine;
    }
  }
  Peaks peaks;
  const std::vector<Json> rows = bench_rows(options.request, peaks);
  const Machine machine = machine_of(options.request.schedule);
  print(text_of(rows, form));
  note(fmt::format("predicted on {}, {}: {}", machine.name, describe_age(machine), worst_ratios(rows)));
  return judge(rows, options);
}

double parse_positive(std::string_view option, std::string_view text) {
  const double value = parse_number(option, text);
  if (value <= 0) refuse(fmt::format("{} {} (not above 0) give a positive number", option, text));
  return value;
}

void add_gates(App& app, BenchOptions& options) {
  add_value(app, "--min-gflops", options.least_gflops, parse_positive, "Exit 1 when a row computes slower", "NUMBER");
  add_value(app, "--max-ratio-to-prediction", options.most_ratio, parse_positive,
            "Exit 1 when a row takes this many times its prediction", "NUMBER");
}

/// What single kernels and calibrations do not honour.
void add_kernels(App& app, BenchOptions& options) {
  const auto parse_kernels = [](std::string_view option, std::string_view text) {
    const auto known = kernel_names();
    const std::vector<std::string_view> words(known.begin(), known.end());
    auto names = text == "all" ? known : parse_list(option, text);
    for (const std::string& name : names) parse_word(option, name, words);
    return names;
  };
  auto* const kernel =
      add_value(app, "--kernel", options.kernels, parse_kernels, "Single kernels on all cores, tiles of --seq tokens",
                "all|" + some_of(kernel_names()));
  for (const Option* const option : app.get_options()) {
    static constexpr std::array<std::string_view, 13> honoured = {
        "--help",    "--seq",      "--heads",         "--kv-heads", "--head-dim", "--value-dim", "--dtype",
        "--backend", "--provider", "--deterministic", "-n",         "-o",         "--json"};
    const std::string name = option->get_name();
    const bool fits = option == kernel || std::find(honoured.begin(), honoured.end(), name) != honoured.end();
    if (!fits) kernel->excludes(app.get_option(name));
  }
}

}  // namespace

Command add_bench_command(App& root) {
  auto* const app =
      root.add_subcommand("bench", "How fast schedules run, beside the machine's peak and the prediction");
  const auto options = std::make_shared<BenchOptions>();
  BenchRequest& request = options->request;
  const auto parse_runs = [](std::string_view option, std::string_view text) {
    return static_cast<int>(within(option, parse_size(option, text), option == "-w" ? 0 : 1, most_runs));
  };
  add_problem_options(*app, request.problem, Several::yes);
  add_seed_option(*app, request.problem);
  add_schedule_options(*app, request.schedule, Several::yes);
  add_launch_options(*app, request.launch);
  app->get_option("--bootstrap")
      ->type_name("inproc")
      ->description("inproc: ranks that are measured are threads of this process");
  app->get_option("--transport")->type_name("inproc")->description("inproc, for the same reason");
  app->add_flag("--backward", request.backward, "Forward, then backward");
  add_value(*app, "-n", request.runs, parse_runs, "Measured runs (default 10)", "N");
  add_value(*app, "-w", request.warmups, parse_runs, "Runs before them (default 2)", "N");
  app->add_flag("-c,--check", request.check, "Compare with float64; exit 1 past the tolerance");
  add_machine_option(*app, request.schedule);
  app->add_flag("--calibrate", options->calibrate,
                "Measure this machine first, store its description, and go on beside every row")
      ->excludes(app->get_option("--machine"));
  add_gates(*app, *options);
  const auto parse_form = [](std::string_view option, std::string_view text) {
    return static_cast<BenchForm>(parse_word(option, text, forms));
  };
  auto* const form =
      add_value(*app, "-o", options->form, parse_form, "As Markdown, CSV or JSON (default md)", one_of(forms));
  app->add_flag("--json", options->json, "As a JSON array: -o json")->excludes(form);
  add_kernels(*app, *options);
  return {app, [app, options] {
            check_honoured(*app, *options);
            return bench(*options);
          }};
}

}  // namespace distattn::cli
