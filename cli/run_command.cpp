#include <fmt/format.h>

#include <filesystem>
#include <limits>

#include "check.hpp"
#include "command.hpp"
#include "console.hpp"
#include "distattn/error.hpp"
#include "launch_options.hpp"
#include "option.hpp"
#include "result_files.hpp"
#include "run_report.hpp"
#include "values.hpp"

namespace distattn::cli {
namespace {

struct RunCommandOptions {
  std::map<std::string, std::string> arrays;  ///< q, k, v, do: paths of .npy
  std::string tensors;
  bool random = false;
  std::int64_t seed = 0;
  ProblemOptions problem;
  ScheduleOptions schedule;
  LaunchOptions launch;
  std::int64_t runs = 1, warmups = 0;
  std::string out;
  bool backward = false, check = false, json = false;
};

std::int64_t parse_seed(std::string_view option, std::string_view text) { return parse_size(option, text); }

/// Inputs, and what @NAME means in them.
struct Source {
  Inputs inputs;
  NamedIntegers named;
};

Source from_tensors(const std::string& path, Passes passes) {
  auto arrays = read_safetensors(path);
  if (passes == Passes::forward) arrays.erase("do");
  const auto named = [arrays, path](const std::string& name) {
    const auto found = arrays.find(name);
    if (found == arrays.end()) refuse(fmt::format("@{} (not a tensor of {}) name one of its tensors", name, path));
    return found->second.integers();
  };
  return {Inputs::from_arrays(arrays), named};
}

Source from_npy(const std::map<std::string, std::string>& paths) {
  std::map<std::string, StoredArray> arrays;
  for (const auto& [name, path] : paths) arrays.emplace(name, read_npy(path));
  return {Inputs::from_arrays(std::move(arrays)), {}};
}

Source open_source(const RunCommandOptions& options) {
  const int kinds = (options.arrays.empty() ? 0 : 1) + (options.tensors.empty() ? 0 : 1) + (options.random ? 1 : 0);
  if (kinds != 1) {
    refuse(fmt::format("{} kinds of input (one is needed) give --q --k --v, or --tensors, or --random with a shape",
                       kinds == 0 ? "no" : "several"));
  }
  if (options.random) {
    if (options.problem.seq.empty()) refuse("--seq is missing (--random needs a shape) add it");
    return {Inputs::random(shape_of(options.problem, options.problem.seq.front()),
                           static_cast<std::uint64_t>(options.seed)),
            {}};
  }
  Source source = options.tensors.empty()
                      ? from_npy(options.arrays)
                      : from_tensors(options.tensors, options.backward ? Passes::both : Passes::forward);
  check_against(options.problem, source.inputs.shape(), source.inputs.origin());
  return source;
}

/// float64 files are not narrowed unless that was asked for.
DType dtype_of(const RunCommandOptions& options, const Inputs& inputs) {
  if (options.problem.dtype) return *options.problem.dtype;
  if (inputs.stored_dtype() != DType::fp64) return DType::fp32;
  if (options.launch.backend == "reference") return DType::fp64;
  refuse(fmt::format("{} is float64 (it would be rounded) add --dtype fp32, or --backend reference to keep it",
                     inputs.origin()));
}

Outcome run(const RunCommandOptions& options) {
  const Passes passes = options.backward ? Passes::both : Passes::forward;
  if (options.arrays.contains("do") && !options.backward) {
    refuse("--do without --backward (a forward pass reads no gradient) add --backward or leave it out");
  }
  const auto [inputs, named] = open_source(options);
  const Problem problem = problem_of(options.problem, inputs.shape(), dtype_of(options, inputs), named);
  const int ranks = static_cast<int>(options.schedule.ranks.front());
  const RunOptions run_options{choose_backend(options.launch.backend, problem, passes),
                               choose_threads(options.launch.threads, ranks), static_cast<int>(options.runs),
                               static_cast<int>(options.warmups)};
  const Prepared prepared =
      prepare(options.schedule.schedules.front(), problem, ranks, run_options.threads, options.schedule, passes);
  std::optional<ResultFiles> files;
  if (!options.out.empty()) files.emplace(options.out, inputs, passes);
  const RunResult result = run_sharded(prepared, inputs, run_options);
  const Sharding& sharding = prepared.plan->outline(Pass::forward).sharding;
  std::optional<Errors> errors;
  if (options.check) {
    note("checking against float64", Verbosity::verbose);
    errors = check_results(sharding, inputs, result.ranks, passes, prepared.plan->counts(Pass::forward).steps);
  }
  if (files) files->commit(sharding, result.ranks);
  const RunReport report{prepared, run_options, result, errors};
  if (options.json) {
    print_json(json_of(report));
  } else {
    print(text_of(report));
  }
  return errors && !errors->within_tolerance() ? Outcome::wrong_result : Outcome::fine;
}

void add_input_options(CLI::App& app, RunCommandOptions& options) {
  for (const char* name : {"q", "k", "v", "do"}) {
    app.add_option_function<std::string>(
           fmt::format("--{}", name), [&options, name](const std::string& path) { options.arrays.emplace(name, path); },
           fmt::format("{} as .npy: [batch, sequence, heads, head_dim], batch may be missing", name))
        ->type_name("FILE");
  }
  add_value(app, "--tensors", options.tensors, as_text, "q, k, v and do of a .safetensors file", "FILE");
  app.add_flag("--random", options.random, "Normally distributed values of the given shape");
  add_value(app, "--seed", options.seed, parse_seed, "Of random values (default 0)", "SIZE");
}

}  // namespace

Command add_run_command(CLI::App& root) {
  constexpr std::int64_t most_runs = 1'000'000;
  const auto parse_runs = [](std::string_view option, std::string_view text) {
    return within(option, parse_size(option, text), option == "-w" ? 0 : 1, most_runs);
  };
  auto* const app = root.add_subcommand("run", "One attention on real or random input");
  const auto options = std::make_shared<RunCommandOptions>();
  add_input_options(*app, *options);
  add_problem_options(*app, options->problem, Several::no);
  add_schedule_options(*app, options->schedule, Several::no);
  add_launch_options(*app, options->launch);
  add_value(*app, "-n", options->runs, parse_runs, "Measured runs (default 1)", "N");
  add_value(*app, "-w", options->warmups, parse_runs, "Runs before them (default 0)", "N");
  app->add_flag("--backward", options->backward, "Forward, then backward");
  app->add_flag("--check", options->check, "Compare with float64; exit 1 past the tolerance");
  add_value(*app, "--out", options->out, as_text, "Write o, lse and gradients as .npy into this folder", "FOLDER");
  app->add_flag("--json", options->json, "As one JSON object");
  return {app, [options] { return run(*options); }};
}

}  // namespace distattn::cli
