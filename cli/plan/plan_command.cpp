#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "cli/command.hpp"
#include "cli/options/option.hpp"
#include "cli/options/values.hpp"
#include "cli/plan/paper_report.hpp"
#include "cli/plan/plan_page.hpp"
#include "cli/plan/plan_rows.hpp"
#include "cli/plan/step_plan.hpp"
#include "cli/rows/tables.hpp"
#include "cli/run/sink_logits.hpp"
#include "cli/run/written_files.hpp"
#include "cli/terminal/console.hpp"
#include "cli/tools/baselines.hpp"
#include "cli/tools/text_writer.hpp"
#include "core/src/format.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

constexpr std::array<std::string_view, 3> route_words = {"routed", "straight", "both"};

struct PlanOptions {
  PlanRequest request;
  StepPlanOptions step;
  std::string paper, html;
  std::string config;  ///< the file of options
  bool json = false;
};

/// "routed, ahead 3" or "straight"
std::string routes_text(const Routes& routes) {
  if (routes.node_size == 0) return "straight";
  return routes.ahead > 0 ? fmt::format("routed, ahead {}", routes.ahead) : "routed";
}

constexpr Column plan_columns[] = {{"schedule", "shown schedule"},
                                   {"pass", "pass"},
                                   {"ranks", "ranks"},
                                   {"seq", "seq"},
                                   {"dtype", "dtype", Shown::where_rows_differ},
                                   {"wire", "wire", Shown::where_rows_differ},
                                   {"mask", "mask", Shown::where_rows_differ},
                                   {"layers", "layers", Shown::where_rows_differ},
                                   {"batch", "batch", Shown::where_rows_differ},
                                   {"seq_kv", "seq_kv", Shown::where_rows_differ},
                                   {"heads", "heads", Shown::where_rows_differ},
                                   {"kv_heads", "kv_heads", Shown::where_rows_differ},
                                   {"head_dim", "head_dim", Shown::where_rows_differ},
                                   {"value_dim", "value_dim", Shown::where_rows_differ},
                                   {"mode", "asked mode", Shown::where_known},
                                   {"routes", "routes"},
                                   {"predicted", "predicted_s"},
                                   {"all layers", "all_layers_s", Shown::where_known},
                                   {"steps", "steps"},
                                   {"messages", "messages"},
                                   {"sent max", "bytes_sent_max"},
                                   {"sent mean", "bytes_sent_mean"},
                                   {"far max", "bytes_far_max"},
                                   {"sent as", "shown form", Shown::where_known},
                                   {"expansion", "expansion_flops_max", Shown::where_known},
                                   {"takes", "expansion_s", Shown::where_known},
                                   {"idle", "idle_ideal"},
                                   {"peak remote", "peak_remote_bytes"},
                                   {"memory", "memory_bytes"},
                                   {"proof", "proof"}};

const char* form_of(const SentAs& sent) { return sent.latents ? "latents" : "keys"; }

/// The fields of the rows and those that only people see. The mode is shown where several were asked for.
FieldsOfRows shown_fields(const std::vector<PlanRow>& rows, bool with_mode) {
  FieldsOfRows fields = fields_of_rows(rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const PassPlan& plan = rows[i].plan;
    const auto add = [&](const char* name, std::string text) {
      fields[i].push_back({{name, units::none, ""}, nullptr, std::move(text)});
    };
    add("shown schedule", plan.schedule + (rows[i].automatic ? " (auto)" : ""));
    add("asked mode", with_mode ? name_of(plan.mode) : unknown_text);
    add("routes", routes_text(plan.routes));
    const auto& sent = rows[i].sent;
    add("shown form", !sent ? unknown_text : fmt::format("{}{}", form_of(*sent), sent->chosen ? " (chosen)" : ""));
    add("proof", "proved");
  }
  return fields;
}

/// What other systems send for a whole layer, next to our attention.
std::string baselines_text(const Problem& problem, int ranks) {
  Columns columns({"published, one layer", "forward", "backward", "of what"});
  for (const Baseline& baseline : baselines(problem, ranks)) {
    columns.add({baseline.name, fmt::format("{:.4g}", baseline.forward), fmt::format("{:.4g}", baseline.backward),
                 baseline.note});
  }
  return fmt::format("\nelements sent by one of {} workers, in tokens x hidden size:\n{}", ranks, columns.text());
}

/// What auto chose, what came second, and what others would cost.
void note_choice(const AutoChoice& choice) {
  const Choice& chosen = choice.ranking.front();
  std::string words = fmt::format("auto on {} ranks, {} tokens{}: {} ({}), {}", choice.ranks, choice.problem.seq_q,
                                  choice.latents ? ", latents sent" : "", chosen.name, routes_text(chosen.routes),
                                  format_seconds(chosen.predicted_s));
  const auto dearer = [&](const Choice& other) {
    return fmt::format("{} ({}) +{:.2f} %", other.name, routes_text(other.routes),
                       100 * (other.predicted_s / chosen.predicted_s - 1));
  };
  if (choice.ranking.size() > 1) words += "; second " + dearer(choice.ranking[1]);
  const auto names = all_schedule_names(choice.problem, choice.ranks);
  const auto named = std::find_if(choice.ranking.begin(), choice.ranking.end(), [&](const Choice& other) {
    return std::find(names.begin(), names.end(), other.name) != names.end();
  });
  if (named != choice.ranking.end() && named - choice.ranking.begin() > 1)
    words += "; best by one name " + dearer(*named);
  note(words);
}

/// How far a placement is from what no schedule can be below, and what keeps it from being faster.
void note_placement(const PlacementNote& placed) {
  note_once(fmt::format("placed on {} ranks, {} tokens: {:.2f} times the lower bound of {}; what binds: {}",
                        placed.ranks, placed.problem.seq_q, placed.predicted_s / placed.lower_bound_s,
                        format_seconds(placed.lower_bound_s), placed.bound));
}

/// What each mask is computed by.
void note_layout(const SharedLayout& shared) {
  std::vector<std::string> parts;
  for (const auto& [mask, layers, schedule, seconds] : shared.masks)
    parts.push_back(fmt::format("{:g} of {} by {}, {} each", layers, mask, schedule, format_seconds(seconds)));
  note(fmt::format("{} on {} ranks, {} masks on one layout: {}", shared.asked, shared.ranks, parts.size(),
                   fmt::join(parts, "; ")));
}

/// Bytes against FLOPs: which of the two ways to send keys and values is the faster one.
void note_latents(const std::vector<PlanRow>& rows, const LatentChoice& choice) {
  const auto words = [&](const PlanRow& row) {
    const std::string expansion =
        row.sent->latents ? fmt::format(" and {:.3g} FLOP to expand them", row.sent->flops) : "";
    return fmt::format("{} ({}, {}, {}{})", form_of(*row.sent), row.plan.schedule, format_seconds(row.seconds()),
                       format_bytes(static_cast<double>(largest(row.plan.counts.bytes_sent))), expansion);
  };
  const PlanRow &keys = rows[choice.keys], &latents = rows[choice.latents];
  const bool send_latents = latents.seconds() < keys.seconds();
  note(fmt::format("{} on {} ranks, {} tokens: send {} rather than {}", name_of(keys.plan.pass), keys.plan.ranks,
                   keys.plan.seq_q, words(send_latents ? latents : keys), words(send_latents ? keys : latents)));
}

Outcome run_paper(const PlanOptions& options) {
  const PaperTable table = compare_with_paper(options.paper);
  if (options.json) {
    print_json(rows_json(figures_of(table)));
  } else {
    print(paper_text(table));
  }
  return Outcome::fine;
}

Outcome run_step(const PlanOptions& options, bool scheduled) {
  if (options.paper.empty()) {
    print_step_plan({options.step, options.request, scheduled}, options.json);
  } else {
    if (!options.step.model.empty()) {
      refuse(fmt::format("--step {} with --paper {} (a paper's steps are those of its own models): leave one out",
                         options.step.model, options.paper));
    }
    print_step_paper(options.paper, options.json);
  }
  return Outcome::fine;
}

std::optional<TextWriter> page_file(const PlanOptions& options) {
  std::vector<std::filesystem::path> read = {options.config, options.request.schedule.machine.value_or(""),
                                             options.request.problem.common.sink_logits};
  MaskOptions named;
  for (const std::string& mask : options.request.problem.mask) {
    named.mask = mask;
    read.emplace_back(named.file());
  }
  for (const WeightedMask& one : options.request.problem.masks_together) {
    named.mask = one.mask;
    read.emplace_back(named.file());
  }
  return open_page(options.html, read);
}

Outcome run_plan(const PlanOptions& options) {
  if (!options.paper.empty()) return run_paper(options);
  std::optional<TextWriter> page = page_file(options);
  const Machine machine = machine_of(options.request.schedule);
  const PlanRows planned = plan_rows(options.request, machine);
  const auto& [rows, skipped, no_problems, choices, placements, shared, latents] = planned;
  note(fmt::format("predicted on {}: {}", machine.name, describe_age(machine)));
  for (const std::string& none : no_problems) note("skipped " + none);
  note_skipped(skipped);
  for (const AutoChoice& choice : choices) note_choice(choice);
  for (const PlacementNote& placed : placements) note_placement(placed);
  for (const SharedLayout& layout : shared) note_layout(layout);
  for (const LatentChoice& choice : latents) note_latents(rows, choice);
  std::vector<std::int64_t> needed;
  for (const PlanRow& row : rows) needed.push_back(row.memory_bytes);
  note_memory(needed, machine);
  const ScheduleOptions& asked = options.request.schedule;
  const FieldsOfRows fields = shown_fields(rows, asked.modes.size() > 1);
  if (options.json) {
    print_json(rows_json(rows));
  } else {
    print(table_of(fields, plan_columns).text() +
          baselines_text(*rows.front().problem, static_cast<int>(asked.ranks.front())));
  }
  if (page) page->commit(page_of(planned, options.request, machine, page_table_of(fields, plan_columns)));
  return Outcome::fine;
}

}  // namespace

Command add_plan_command(App& root) {
  auto* const app = root.add_subcommand("plan", "What each schedule would cost, proved, without computing anything");
  const auto options = std::make_shared<PlanOptions>();
  options->request.schedule.schedules = {"all"};
  add_problem_options(*app, options->request.problem);
  add_sink_logits_option(*app, options->request.problem.common.sink_logits);
  add_seed_option(*app, options->request.problem.common)->needs(app->get_option("--documents"));
  add_schedule_options(*app, options->request.schedule, Several::yes);
  add_machine_option(*app, options->request.schedule);
  app->add_flag("--backward", options->request.backward, "The backward pass too", Group::problem);
  const auto parse_routes = [](std::string_view option, std::string_view text) {
    return static_cast<RouteKinds>(parse_word(option, text, route_words));
  };
  add_value(*app, "--routes", options->request.routes, parse_routes,
            "routed: messages follow nodes; straight: from owner to user (default routed)", one_of(route_words),
            rarely(Group::schedule));
  add_value(*app, "--latents", options->request.latents, parse_latents,
            "Every schedule twice, and which is faster: keys and values sent as they are, or as latents of D numbers "
            "that are expanded on arrival; keys end with R more as they are (MLA: 512+64)",
            "D[+R]", rarely(Group::problem));
  add_html_option(*app, options->html);
  exclude_others(*app, *add_value(*app, "--paper", options->paper, as_text, "A paper's figures next to ours",
                                  one_of(paper_names()), rarely(Group::problem)));
  add_step_plan_options(*app, options->step);
  add_to_help(*app, "--dtype", "; with --step bf16, on cores fp32");
  for (const char* const answered : {"--checkpoint", "--state"}) {
    app->get_option("--paper")->excludes(app->get_option(answered));
  }
  app->add_flag("--json", options->json, "As a JSON array", Group::output);
  return {app, [app, options, config = root.get_option("--config")] {
            options->config = config->text();
            take_launched_ranks(*app, options->request.schedule);
            if (options->step.asked) return run_step(*options, app->count("--schedule") > 0);
            return run_plan(*options);
          }};
}

}  // namespace distattn::cli
