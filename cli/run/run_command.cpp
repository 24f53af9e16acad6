#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/options/launch_options.hpp"
#include "cli/options/option.hpp"
#include "cli/options/values.hpp"
#include "cli/rows/tables.hpp"
#include "cli/run/agreement.hpp"
#include "cli/run/check.hpp"
#include "cli/run/input_options.hpp"
#include "cli/run/narrowing.hpp"
#include "cli/run/program_file.hpp"
#include "cli/run/ranks.hpp"
#include "cli/run/result_files.hpp"
#include "cli/run/run_report.hpp"
#include "cli/run/sink_logits.hpp"
#include "cli/run/written_files.hpp"
#include "cli/terminal/console.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

struct RunCommandOptions {
  InputOptions input;
  ProblemOptions problem;
  ScheduleOptions schedule;
  ComputeOptions launch;
  std::string program, out;
  PicturePaths pictures;
  std::string config;  ///< the file of options
  std::int64_t runs = 1, warmups = 0;
  bool seeded = false, dropout_seeded = false;  ///< --seed, --dropout-seed was given
  bool backward = false, check = false, json = false;
};

/// Everything that is decided before anything is computed.
struct Job {
  Inputs inputs;
  SharedPlan plan;
  RunOptions options;
};

Passes passes_of(const AttentionPlan& plan) { return plan.has(Pass::backward) ? Passes::both : Passes::forward; }

/// float64 files are not narrowed unless that was asked for.
DType dtype_of(const RunCommandOptions& options, const Inputs& inputs) {
  if (options.problem.dtype) return *options.problem.dtype;
  const StoredArray* const widest = inputs.widest();
  if (widest == nullptr || widest->tensor().dtype != DType::fp64) return DType::fp32;
  if (options.launch.backend == "reference") return DType::fp64;
  refuse(fmt::format("{} is float64 (it would be rounded): add --dtype fp32, or --backend reference to keep it",
                     widest->origin()));
}

RunOptions run_options(const RunCommandOptions& options, const World& world, const Problem& problem, Passes passes) {
  return {choose_backend(options.launch, problem, passes),
          options.launch.device_options(choose_threads(options.launch.device.threads, world)),
          static_cast<int>(options.runs), static_cast<int>(options.warmups)};
}

/// What must be the same on all ranks for them to go through the same collectives.
std::string command_text(const RunCommandOptions& options) {
  return fmt::format("{}{}{}, {}, -n {} -w {}{}{}",
                     options.program.empty() ? "schedule " + options.schedule.schedules.front() : "a program",
                     given_text(options.schedule), given_text(options.launch),
                     options.backward ? "both passes" : "forward", options.runs, options.warmups,
                     options.check ? ", --check" : "", options.out.empty() ? "" : ", --out");
}

/// A schedule by name, for a problem that options and files give.
Job named_job(World& world, const RunCommandOptions& options) {
  const Passes passes = options.backward ? Passes::both : Passes::forward;
  const auto random_shape = [&] {
    if (!options.problem.seq) refuse("--seq is missing (--random needs a shape): add it");
    return shape_of(options.problem, *options.problem.seq);
  };
  if (options.problem.shared_kv && !options.input.random && !options.problem.value_dim)
    refuse("--shared-kv without --value-dim (files do not say how much of a key is its value): add it");
  const auto shared = options.problem.shared_kv ? options.problem.value_dim : std::nullopt;
  auto [inputs, named, numbers] =
      open_source(options.input, random_shape, options.problem.seed, options.backward, shared);
  if (!options.input.random) check_against(options.problem, inputs.shape(), inputs.origin());
  const DType dtype = dtype_of(options, inputs);
  bring_sink_logits(inputs, options.problem.sink_logits, dtype, options.problem.seed, numbers);
  inputs.set_dropout_seed(options.problem.dropout_seed);
  const Problem problem = problem_of(options.problem, inputs.shape(), dtype, named);
  agree_on_problem(world, problem);
  agree_on_inputs(world, inputs, options.backward);
  const RunOptions chosen = run_options(options, world, problem, passes);
  SharedPlan plan = prepare(world, options.schedule.schedules.front(), problem, chosen.device.threads,
                            on_nodes_of(world, options.schedule), passes);
  return {std::move(inputs), std::move(plan), chosen};
}

/// A program from a file, which says its problem itself.
Job program_job(World& world, const RunCommandOptions& options, SharedPlan plan) {
  const Problem& problem = plan->outline(Pass::forward).sharding.problem;
  const Passes passes = passes_of(*plan);
  const Shape shape = shape_of(problem);
  auto [inputs, named, numbers] = open_source(
      options.input, [&] { return shape; }, options.problem.seed, passes == Passes::both,
      shape.shared_kv ? std::optional(shape.value_dim) : std::nullopt);
  if (inputs.shape() != shape) {
    refuse(
        fmt::format("{} does not fit {} (which is for batch {}, {} queries, {} keys, {}/{} heads of {}): show one "
                    "for this shape",
                    inputs.origin(), options.program, shape.batch, shape.seq_q, shape.seq_kv, shape.heads,
                    shape.kv_heads, shape.head_dim));
  }
  if (problem.scores.sink_logits == options.problem.sink_logits.empty()) {
    refuse(fmt::format("{} is for a problem {} (it is another problem): {}", options.program,
                       problem.scores.sink_logits ? "with sink logits" : "without sink logits",
                       problem.scores.sink_logits ? "add --sink-logits" : "leave --sink-logits out"));
  }
  if (options.dropout_seeded && problem.scores.dropout == 0) {
    refuse(fmt::format("{} is for a problem without dropout (--dropout-seed would change nothing): leave it out",
                       options.program));
  }
  inputs.set_dropout_seed(options.problem.dropout_seed);
  bring_sink_logits(inputs, options.problem.sink_logits, problem.dtype, options.problem.seed, numbers);
  agree_on_programs(world, *plan);
  agree_on_inputs(world, inputs, passes == Passes::both);
  const RunOptions chosen = run_options(options, world, problem, passes);
  return {std::move(inputs), std::move(plan), chosen};
}

/// Refuses results in place of what the command reads.
void check_places(const RunCommandOptions& options, const Problem& problem, Passes passes) {
  std::vector<std::filesystem::path> read = {options.input.tensors, options.program, options.config,
                                             options.schedule.machine.value_or("")};
  read.emplace_back(options.problem.mask.file());
  for (const auto& [name, path] : options.input.arrays) read.emplace_back(path);
  read.emplace_back(options.problem.sink_logits);
  read.emplace_back(options.problem.alibi);
  std::vector<std::filesystem::path> written = {options.pictures.svg, options.pictures.trace, options.pictures.html};
  if (!options.out.empty()) {
    for (auto& path : result_paths(options.out, passes, problem)) written.push_back(std::move(path));
  }
  refuse_overwriting(read, written);
}

Outcome run(World& world, const RunCommandOptions& options, const SharedPlan& program) {
  agree_on_command(world, command_text(options));
  const auto [inputs, plan, chosen] = program ? program_job(world, options, program) : named_job(world, options);
  const Passes passes = passes_of(*plan);
  const Sharding& sharding = plan->outline(Pass::forward).sharding;
  check_places(options, sharding.problem, passes);
  check_values(world, sharding, inputs, passes);
  const Machine machine = machine_of(world, options.schedule);
  note(fmt::format("predicted on {}: {}", machine.name, describe_age(machine)), Verbosity::verbose);
  note_other_backend(machine, chosen.backend);
  std::optional<ResultFiles> files;
  if (!options.out.empty()) files.emplace(world, options.out, inputs, sharding.problem, passes);
  std::optional<PictureFiles> pictures;  // maybe into the folder that was just made
  if (world.first() == 0) {
    pictures.emplace(options.pictures, files ? files->paths() : std::vector<std::filesystem::path>());
  }
  const RunResult result = run_sharded(world, plan, inputs, chosen);
  std::optional<Errors> errors;
  if (options.check) {
    note("checking against float64", Verbosity::verbose);
    errors = check_results(world, *plan, inputs, result.ranks, passes);
  }
  require_unchanged_files();
  if (files) files->commit(sharding, result.ranks);
  const Predictions predictions = predict(*plan, machine, chosen);
  const RunReport report{world, *plan, chosen, result, predictions, errors};
  if (options.json) {
    print_json(row_json(row_of(report)));
  } else {
    print(text_of(report));
  }
  if (pictures) pictures->commit(*plan, predictions, result);
  if (!errors || errors->within_tolerance()) return Outcome::fine;
  if (world.first() == 0) {
    print_error(fmt::format("the result is wrong ({}): compare with --backend reference", text_of(errors->worst())));
  }
  return Outcome::wrong_result;
}

/// On as many ranks as the options, a program or a launcher say.
Outcome run(const RunCommandOptions& options) {
  if (options.seeded && !options.input.random && options.problem.mask.documents.empty() &&
      options.problem.sink_logits != "random") {
    refuse(fmt::format("--seed {} (nothing is drawn: values are read, and no --documents are asked for): leave it out",
                       options.problem.seed));
  }
  SharedPlan program;
  std::vector<std::int64_t> ranks = options.schedule.ranks;
  if (!options.program.empty()) {
    program = std::make_shared<const AttentionPlan>(read_programs(options.program));
    ranks = {program->ranks()};
  }
  return with_ranks(options.launch, ranks, [&](World& world) { return run(world, options, program); });
}

}  // namespace

Command add_run_command(App& root) {
  constexpr std::int64_t most_runs = 1'000'000;
  const auto parse_runs = [](std::string_view option, std::string_view text) {
    return within(option, parse_size(option, text), option == "-w" ? 0 : 1, most_runs);
  };
  auto* const app = root.add_subcommand("run", "One attention on real or random input");
  const auto options = std::make_shared<RunCommandOptions>();
  add_problem_options(*app, options->problem);
  add_schedule_options(*app, options->schedule, Several::no);
  options->schedule.ranks.clear();  // as many as the launcher started, or 1
  app->add_flag("--backward", options->backward, "Forward, then backward", Group::problem);
  auto* const program = add_value(*app, "--program", options->program, as_text,
                                  "Run a program that show printed as JSON, proved first, instead of a named schedule",
                                  "FILE", rarely(Group::schedule));
  // A program says how much is dropped, and each run of it what.
  auto *const dropout = app->get_option("--dropout"), *const dropped = app->get_option("--dropout-seed");
  exclude_others(*app, *program, dropped);
  dropped->needs_no_more(dropout);
  auto* const seed = add_seed_option(*app, options->problem);
  add_input_options(*app, options->input);
  add_sink_logits_option(*app, options->problem.sink_logits);
  add_launch_options(*app, options->launch);
  add_value(*app, "-n", options->runs, parse_runs, "Measured runs (default 1)", "N", Group::output);
  add_value(*app, "-w", options->warmups, parse_runs, "Warm-up runs before them (default 0)", "N", Group::output);
  app->add_flag("--check", options->check, "Compare with float64; exit 1 past the tolerance", Group::output);
  add_value(*app, "--out", options->out, as_text, "Write o, lse and gradients as .npy into this folder", "FOLDER",
            Group::output);
  add_machine_option(*app, options->schedule);
  add_value(*app, "--svg", options->pictures.svg, as_text, "Draw the timeline, predicted above measured", "FILE",
            Group::output);
  add_value(*app, "--trace", options->pictures.trace, as_text, "Write the timeline as a trace for Perfetto", "FILE",
            Group::output);
  add_html_option(*app, options->pictures.html);
  app->add_flag("--json", options->json, "As one JSON object", Group::output);
  return {app, [options, seed, dropout, dropped, config = root.get_option("--config")] {
            options->seeded = seed->count() > 0;
            options->dropout_seeded = dropped->count() > 0;
            if (options->dropout_seeded && dropout->count() == 0 && options->program.empty())
              refuse("--dropout-seed requires --dropout (nothing is dropped): add it, or leave --dropout-seed out");
            options->config = config->text();
            return run(*options);
          }};
}

}  // namespace distattn::cli
