#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <vector>

#include "cli/command.hpp"
#include "cli/options/option.hpp"
#include "cli/options/problem_options.hpp"
#include "cli/options/schedule_options.hpp"
#include "cli/options/values.hpp"
#include "cli/run/program_file.hpp"
#include "cli/run/sink_logits.hpp"
#include "cli/run/written_files.hpp"
#include "cli/terminal/console.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/standard_streams.hpp"
#include "cli/terminal/terminal.hpp"
#include "cli/tools/draw.hpp"
#include "cli/tools/page.hpp"
#include "cli/tools/text_writer.hpp"
#include "distattn/error.hpp"
#include "distattn/plan.hpp"

namespace distattn::cli {
namespace {

enum class Format : std::size_t { text, json, svg, trace, layout };
constexpr std::array<std::string_view, 5> format_names = {"text", "json", "svg", "trace", "layout"};

struct ShowOptions {
  ProblemOptions problem;
  ScheduleOptions schedule;
  std::string program, html;
  std::string config;  ///< the file of options
  Format format = Format::text;
  bool backward = false;
};

Format parse_format(std::string_view option, std::string_view text) {
  return static_cast<Format>(parse_word(option, text, format_names));
}

bool is_predicted(const ShowOptions& options) {
  return options.format == Format::svg || options.format == Format::trace || !options.html.empty();
}

/// A picture needs a shape even where nobody cares which: 1024 tokens a rank, and heads that many ranks can share.
ProblemOptions with_usual_shape(ProblemOptions options, std::int64_t ranks) {
  constexpr std::int64_t tokens_per_rank = 1024, heads = 32, head_dim = 128;
  if (!options.seq) options.seq = tokens_per_rank * ranks;
  if (!options.heads) options.heads = options.kv_heads.value_or(heads);
  if (!options.head_dim) options.head_dim = head_dim;
  return options;
}

AttentionPlan plan_of(const ShowOptions& options) {
  if (!options.program.empty()) {
    if (options.schedule.machine && !is_predicted(options)) {
      refuse(
          fmt::format("--machine {} with --program {} (only --format svg and trace, and --html, predict what a program "
                      "takes): leave it out",
                      *options.schedule.machine, options.program));
    }
    return AttentionPlan(read_programs(options.program));
  }
  const std::int64_t ranks = options.schedule.ranks.front();
  const Problem problem = problem_of(with_usual_shape(options.problem, ranks));
  check_sink_logits(options.problem.sink_logits, problem);
  const Passes passes = options.backward ? Passes::both : Passes::forward;
  const ScheduleRequest request =
      request_of(options.schedule, options.schedule.schedules.front(), passes, machine_of(options.schedule));
  auto decision = with_options_named(decided(problem, static_cast<int>(ranks), request));
  return or_refuse(with_options_named(plan(problem, static_cast<int>(ranks), or_refuse(std::move(decision)))));
}

/// Every pass with its predicted timeline.
struct Predicted {
  std::vector<Timeline> timelines;
  std::vector<Drawing> drawings;
};

Predicted predicted(const AttentionPlan& plan, const std::vector<Schedule>& programs, const ShowOptions& options) {
  if (!is_predicted(options)) return {};
  const Machine machine = machine_of(options.schedule);
  Predicted all;
  for (const Schedule& program : programs) {
    all.timelines.push_back(plan.predict(program.outline.pass, machine, machine.threads_of_rank(plan.ranks())));
  }
  note(fmt::format("predicted on {}: {}", machine.name, describe_age(machine)));
  for (std::size_t i = 0; i < programs.size(); ++i) {
    all.drawings.push_back({&programs[i], {{"predicted on " + machine.name, &all.timelines[i]}}});
  }
  return all;
}

std::optional<TextWriter> page_file(const ShowOptions& options) {
  std::vector<std::filesystem::path> read = {options.program, options.config, options.schedule.machine.value_or("")};
  read.emplace_back(options.problem.mask.file());
  read.emplace_back(options.problem.sink_logits);
  return open_page(options.html, read);
}

void write_page(TextWriter& file, const AttentionPlan& plan, const std::vector<Drawing>& drawings) {
  Page page(fmt::format("{} on {} ranks", plan.name(), plan.ranks()));
  page.add(plan.name(), drawings);
  file.commit(page.finish());
  note_coarser(page);
}

const std::string& layout_of(const AttentionPlan& plan, bool from_file) {
  if (plan.layout().empty() && from_file)
    refuse("--format layout with --program (a program no longer says what it was made from): give --schedule placed");
  if (plan.layout().empty())
    refuse(fmt::format("--format layout (schedule {} has a layout of its own): show placed", plan.name()));
  return plan.layout();
}

Outcome show(const ShowOptions& options) {
  std::optional<TextWriter> page = page_file(options);
  const AttentionPlan plan = plan_of(options);
  std::vector<Schedule> programs;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (plan.has(pass)) programs.push_back(plan.schedule(pass));
  }
  const Predicted pictures = predicted(plan, programs, options);
  switch (options.format) {
    case Format::text:
      for (const Schedule& program : programs) {
        const std::size_t columns = std::min(columns_of_lines(results_descriptor()), usual_table_columns);
        print(to_text(program, verbosity() == Verbosity::verbose, columns));
      }
      break;
    case Format::json:
      print_data(programs_json(programs));
      break;
    case Format::svg:
      print_data(to_svg(pictures.drawings));
      break;
    case Format::trace:
      print_data(to_trace(pictures.drawings));
      break;
    case Format::layout:
      print_data(layout_of(plan, !options.program.empty()) + "\n");
      break;
  }
  if (page) write_page(*page, plan, pictures.drawings);
  return Outcome::fine;
}

}  // namespace

Command add_show_command(App& root) {
  auto* const app = root.add_subcommand("show", "One schedule, step by step; with -v every operation of every rank");
  const auto options = std::make_shared<ShowOptions>();
  add_problem_options(*app, options->problem);
  add_sink_logits_option(*app, options->problem.sink_logits);
  add_seed_option(*app, options->problem)->needs(app->get_option("--documents"));
  add_schedule_options(*app, options->schedule, Several::no);
  for (const auto& [option, usual] : {std::pair("--seq", "1024 a rank"), {"--heads", "32"}, {"--head-dim", "128"}}) {
    add_to_help(*app, option, std::string(" (default ") + usual + ")");
  }
  app->add_flag("--backward", options->backward, "The backward pass too", Group::problem);
  auto* const program =
      add_value(*app, "--program", options->program, as_text,
                "A schedule that show printed as JSON, proved before it is shown", "FILE", rarely(Group::schedule));
  exclude_others(*app, *program);
  add_value(*app, "--format", options->format, parse_format,
            "text: rows ranks, columns steps; svg: a predicted timeline; trace: the same for Perfetto; "
            "layout: for --layout (default text)",
            one_of(format_names), Group::output);
  add_machine_option(*app, options->schedule);
  add_html_option(*app, options->html);
  return {app, [app, options, config = root.get_option("--config")] {
            options->config = config->text();
            take_launched_ranks(*app, options->schedule);
            return show(*options);
          }};
}

}  // namespace distattn::cli
