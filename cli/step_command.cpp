#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cli/command.hpp"
#include "cli/options/launch_options.hpp"
#include "cli/options/option.hpp"
#include "cli/options/problem_options.hpp"
#include "cli/options/schedule_options.hpp"
#include "cli/options/values.hpp"
#include "cli/rows/step.hpp"
#include "cli/rows/tables.hpp"
#include "cli/run/agreement.hpp"
#include "cli/run/memory.hpp"
#include "cli/run/prepared.hpp"
#include "cli/run/ranks.hpp"
#include "cli/run/sharded_run.hpp"
#include "cli/step/training_run.hpp"
#include "cli/terminal/console.hpp"
#include "core/src/format.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

constexpr std::int64_t most_steps = 1 << 30;

struct StepOptions {
  step::ModelShape shape;
  std::optional<std::int64_t> sequence, hidden, heads, kv_heads, ffn;
  std::int64_t steps = 1, seed = 0;
  std::string checkpoint = "attention-output", text;
  MaskOptions mask;
  Scores scores;
  std::string alibi;
  ScheduleOptions schedule;
  ComputeOptions launch;
  bool verify = false, json = false;
};

std::int64_t required(const std::optional<std::int64_t>& value, const char* option) {
  if (!value) refuse(fmt::format("{} is missing (a step needs a model and a sequence): add it", option));
  return *value;
}

step::ModelShape shape_of(const StepOptions& options) {
  const auto as_int = [](const char* option, std::int64_t value) {
    return static_cast<int>(within(option, value, 1, std::numeric_limits<int>::max()));
  };
  step::ModelShape shape = options.shape;
  shape.hidden = required(options.hidden, "--hidden");
  shape.heads = as_int("--heads", required(options.heads, "--heads"));
  shape.kv_heads = as_int("--kv-heads", options.kv_heads.value_or(shape.heads));
  shape.ffn = options.ffn.value_or(step::usual_ffn(shape.hidden));
  step::check(shape);
  return shape;
}

step::TrainingRun training_run_of(World& world, const StepOptions& options) {
  step::TrainingRun run;
  run.shape = shape_of(options);
  const std::int64_t sequence = required(options.sequence, "--seq");
  run.problem = step::attention_problem(run.shape, sequence,
                                        mask_of(options.mask, sequence, static_cast<std::uint64_t>(options.seed)));
  run.problem.scores = options.scores;
  run.problem.alibi_slopes = slopes_of(options.alibi, run.problem.heads);
  check(run.problem);
  run.policy = &step::checkpoint_policy(options.checkpoint);
  agree_on_problem(world, run.problem);
  run.device = options.launch.device_options(choose_threads(options.launch.device.threads, world));
  run.backend = choose_backend(options.launch, run.problem, Passes::both);
  run.plan = prepare(world, options.schedule.schedules.front(), run.problem, run.device.threads,
                     on_nodes_of(world, options.schedule), Passes::both);
  run.steps = static_cast<int>(options.steps);
  run.seed = static_cast<std::uint64_t>(options.seed);
  run.verify = options.verify ? step::Verify::yes : step::Verify::no;
  return run;
}

/// Refuses what takes more than --memory or than the system gives these ranks, before anything is allocated.
/// Collective.
void check_memory(World& world, const step::TrainingRun& run, const ScheduleOptions& options) {
  const double needed = step::rank_bytes(run);
  if (options.memory_bytes && needed > static_cast<double>(*options.memory_bytes)) {
    refuse(fmt::format("a step needs {} a rank (--memory allows {}): use more ranks, or keep less with --checkpoint",
                       format_bytes(needed), format_bytes(static_cast<double>(*options.memory_bytes))));
  }
  require_memory(
      world, [&](int ranks) { return step::node_bytes(run, ranks); }, "this step");
}

constexpr Column training_columns[] = {{"step", "step"},
                                       {"loss", "loss"},
                                       {"grad norm", "grad_norm"},
                                       {"seconds", "seconds"},
                                       {"forward", "forward_s"},
                                       {"backward", "backward_s"},
                                       {"attention", "attention_s"},
                                       {"calls", "calls"},
                                       {"sent max", "bytes_sent_max"},
                                       {"kept", "peak_activation_bytes"},
                                       {"gradient error", "worst gradient"}};

std::string text_of(const std::vector<StepRow>& rows) {
  FieldsOfRows fields = fields_of_rows(rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& [report, error, parameter] = rows[i];
    fields[i].push_back(calls_cell(report));
    fields[i].push_back({{"worst gradient", units::none, ""},
                         nullptr,
                         error ? fmt::format("{:.1e} ({})", *error, parameter) : unknown_text});
  }
  return table_of(fields, training_columns).text();
}

std::string why_wrong(int step, const step::GradientError& error) {
  return fmt::format(
      "the gradient of {} is wrong in step {} (an error of {:.2e} is beyond the tolerance of {:.2e}): "
      "compare with --backend reference",
      error.parameter, step, error.largest, step::gradient_tolerance);
}

/// What must be the same on all ranks for them to train one model.
std::string command_text(const StepOptions& options) {
  return fmt::format(
      "schedule {}{}{}, {} layers, hidden {}, ffn {}, vocabulary {}, --steps {}, --seed {}, --checkpoint {}{}{}",
      options.schedule.schedules.front(), given_text(options.schedule), given_text(options.launch),
      options.shape.layers, options.hidden.value_or(0), options.ffn.value_or(0), options.shape.vocab, options.steps,
      options.seed, options.checkpoint, options.text.empty() ? "" : ", --text", options.verify ? ", --verify" : "");
}

Outcome run_step(World& world, const StepOptions& options) {
  agree_on_command(world, command_text(options));
  const step::TrainingRun run = training_run_of(world, options);
  check_memory(world, run, options.schedule);
  const auto tokens = options.text.empty() ? step::TokenSource::random(run.problem.seq_q, run.shape.vocab, run.seed)
                                           : step::TokenSource::text(options.text, run.problem.seq_q, run.shape.vocab);
  agree_on_bytes(world, "the text that it trains on", std::as_bytes(tokens.bytes()));
  std::vector<StepRow> rows;
  std::string wrong;  // which gradient first passed its tolerance, and by how much
  Progress progress;
  step::run_training(world, run, tokens, [&](const auto& report, const auto& error) {
    progress.show(fmt::format("step {} of {}: loss {:.4f}", report.step + 1, run.steps, report.loss));
    rows.push_back({report, std::nullopt, ""});
    if (error) rows.back().gradient_error = error->largest;
    if (error) rows.back().worst_parameter = error->parameter;
    if (error && wrong.empty() && !(error->largest <= step::gradient_tolerance)) wrong = why_wrong(report.step, *error);
  });
  progress.done();
  if (options.json) {
    print_json(rows_json(rows));
  } else {
    print(text_of(rows));
  }
  if (wrong.empty()) return Outcome::fine;
  print_error(wrong);
  return Outcome::wrong_result;
}

void add_model_options(App& app, StepOptions& options) {
  const auto parse_positive = [](std::string_view option, std::string_view text) {
    return within(option, parse_size(option, text), 1, std::numeric_limits<std::int64_t>::max());
  };
  const auto parse_count = [](std::string_view option, std::string_view text) {
    return static_cast<int>(within(option, parse_size(option, text), 1, std::numeric_limits<int>::max()));
  };
  add_value(app, "--layers", options.shape.layers, parse_count, "Layers of the decoder (default 2)", "N",
            Group::problem);
  add_value(app, "--hidden", options.hidden, parse_positive, "Width of the residual stream", "SIZE", Group::problem);
  add_value(app, "--ffn", options.ffn, parse_positive, "Width of the feed-forward part (default 8/3 of --hidden)",
            "SIZE", Group::problem);
  add_value(app, "--vocab", options.shape.vocab, parse_positive, "Tokens of the vocabulary (default 256)", "SIZE",
            Group::problem);
  add_value(app, "--seq", options.sequence, parse_positive, "Tokens of the sequence", "SIZE", Group::problem);
  add_value(app, "--heads", options.heads, parse_positive, "Query heads; they divide --hidden", "SIZE", Group::problem);
  add_value(app, "--kv-heads", options.kv_heads, parse_positive, "Key and value heads (default: --heads)", "SIZE",
            Group::problem);
}

std::vector<std::string_view> policy_names() {
  std::vector<std::string_view> names;
  for (const auto& policy : step::checkpoint_policies()) names.emplace_back(policy.name);
  return names;
}

}  // namespace

StepLibrary step_library() { return {step::blas_name(), step::blas_file(), ""}; }

Command add_step_command(App& root) {
  auto* const app = root.add_subcommand("step", "Training steps of a decoder whose sequence is sharded over the ranks");
  const auto options = std::make_shared<StepOptions>();
  const auto parse_steps = [](std::string_view option, std::string_view text) {
    return within(option, parse_size(option, text), 1, most_steps);
  };
  const auto parse_seed = [](std::string_view option, std::string_view text) { return parse_size(option, text); };
  add_model_options(*app, *options);
  add_value(*app, "--steps", options->steps, parse_steps, "Training steps (default 1)", "N", Group::problem);
  add_value(*app, "--checkpoint", options->checkpoint, as_text,
            "What is kept from forward to backward (default attention-output)", one_of(policy_names()),
            Group::schedule);
  add_value(*app, "--text", options->text, as_text, "Trains on the bytes of this file (default: random tokens)", "FILE",
            Group::input);
  add_value(*app, "--seed", options->seed, parse_seed, "Seed of weights, random tokens and drawn documents (default 0)",
            "N", Group::input);
  add_mask_options(*app, options->mask);
  add_map_options(*app, options->scores, options->alibi);
  add_schedule_options(*app, options->schedule, Several::no);
  options->schedule.ranks.clear();  // as many as the launcher started, or 1
  add_machine_option(*app, options->schedule);
  add_launch_options(*app, options->launch);
  app->add_flag("--verify", options->verify, "Compares every gradient with the unsharded step in float64",
                Group::output);
  app->add_flag("--json", options->json, "As a JSON array, one object a step", Group::output);
  return {app, [options] {
            const bool threads = options->launch.bootstrap == "inproc" || ranks_in_environment() == 1;
            step::load_blas(
                threads && !options->schedule.ranks.empty() ? static_cast<int>(options->schedule.ranks.front()) : 1);
            return with_ranks(options->launch, options->schedule.ranks,
                              [&](World& world) { return run_step(world, *options); });
          }};
}

}  // namespace distattn::cli
