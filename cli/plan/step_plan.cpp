#include "cli/plan/step_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include "cli/options/option.hpp"
#include "cli/options/values.hpp"
#include "cli/plan/paper_report.hpp"
#include "cli/rows/step.hpp"
#include "cli/rows/tables.hpp"
#include "cli/step/models.hpp"
#include "cli/step/papers.hpp"
#include "cli/step/sequence_search.hpp"
#include "cli/terminal/console.hpp"
#include "core/src/format.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn::cli {
namespace {

constexpr std::array<std::string_view, 2> state_words = {"replicated", "sharded"};

struct StepPlan {
  std::vector<StepPlanRow> rows;
  std::vector<WhyNot> skipped;
};

constexpr const char* one_problem = "a step is planned for one problem at a time";

/// Everything but the schedule.
step::StepSetting setting_of(const StepPlanRequest& request, const Machine& machine, std::int64_t sequence, int ranks) {
  const ProblemOptions problem = only_combination(request.plan.problem, one_problem);
  step::StepSetting setting;
  setting.shape = step::find_model(request.options.model);
  setting.sequence = sequence;
  setting.batch = problem.batch.value_or(1);
  setting.mask = mask_of(problem.mask, sequence, problem.seed);
  setting.mask_at = [options = problem.mask, seed = problem.seed](std::int64_t other) {
    return options.is_of_one_length() ? std::nullopt : std::optional(mask_of(options, other, seed));
  };
  setting.ranks = ranks;
  setting.attention =
      request_of(each_mode(request.plan.schedule).front(), setting.attention.schedule, Passes::both, machine);
  setting.attention.threads = machine.threads_of_rank(ranks);
  setting.dtype = problem.dtype.value_or(machine.cores == 0 ? DType::bf16 : DType::fp32);
  setting.wire = problem.wire.value_or(setting.wire);
  setting.state = request.options.state;
  setting.memory_bytes = request.plan.schedule.memory_bytes;
  return setting;
}

std::vector<std::string> schedules_of(const StepPlanRequest& request, const step::StepSetting& setting) {
  if (!request.scheduled) return {"auto"};
  return names_of(request.plan.schedule, step::attention_problem_of(setting), setting.ranks);
}

std::vector<std::string> policies_of(const StepPlanOptions& options) {
  if (!options.policies.empty()) return options.policies;
  std::vector<std::string> names;
  for (const auto& policy : step::checkpoint_policies()) names.emplace_back(policy.name);
  return names;
}

/// Plans one sequence on some ranks.
class StepPlanner {
 public:
  StepPlanner(const StepPlanRequest& request, const Machine& machine, StepPlan& plan)
      : request_(request), machine_(machine), plan_(plan) {}

  void add(const step::StepSetting& common) {
    for (const std::string& schedule : schedules_of(request_, common)) {
      step::StepSetting setting = common;
      setting.attention.schedule = schedule;
      auto decision = decided(step::attention_problem_of(setting), setting.ranks, setting.attention);
      if (auto* const request = std::get_if<ScheduleRequest>(&decision)) {
        setting.attention = std::move(*request);
        add(setting, step::attention_cost(setting, machine_));
      } else {
        skip(plan_.skipped, std::get<WhyNot>(std::move(decision)));
      }
    }
  }

 private:
  void add(const step::StepSetting& setting, std::variant<step::AttentionCost, WhyNot> planned) {
    if (auto* const why = std::get_if<WhyNot>(&planned)) return skip(plan_.skipped, std::move(*why));
    const auto& attention = std::get<step::AttentionCost>(planned);
    const std::string& schedule = setting.attention.schedule;
    step::SequenceSearch sequences(setting, machine_);
    for (const std::string& name : policies_of(request_.options)) {
      const step::CheckpointPolicy& policy = step::checkpoint_policy(name);
      const step::StepPrediction step = step::predict_step(setting, policy, attention, machine_);
      if (setting.memory_bytes && step.memory_bytes > *setting.memory_bytes) {
        const std::string need = format_bytes(static_cast<double>(step.memory_bytes));
        plan_.skipped.push_back({WhyNot::Kind::too_large, fmt::format("{} under {}", schedule, name), setting.ranks,
                                 fmt::format("{} tokens need {}", setting.sequence, need), ""});
      } else {
        plan_.rows.push_back({request_.options.model, machine_.name, schedule, name,
                              std::string(state_words[index(request_.options.state)]), setting.ranks, setting.sequence,
                              step, sequences.longest(policy)});
      }
    }
  }

  const StepPlanRequest& request_;
  const Machine& machine_;
  StepPlan& plan_;
};

StepPlan predict(const StepPlanRequest& request, const Machine& machine) {
  step::find_model(request.options.model);  // refuses a name that is none, whatever else is missing
  if (request.plan.problem.seq.empty()) refuse("--seq is missing (a step needs a sequence): add it");
  if (request.plan.schedule.modes.size() > 1)
    refuse(fmt::format("--mode has several values ({}): give one", one_problem));
  StepPlan plan;
  for (const std::int64_t sequence : request.plan.problem.seq) {
    for (const std::int64_t ranks : request.plan.schedule.ranks) {
      StepPlanner(request, machine, plan).add(setting_of(request, machine, sequence, static_cast<int>(ranks)));
    }
  }
  if (plan.rows.empty())
    refuse_all("no step is left to plan", plan.skipped,
               "choose another schedule, other ranks, more memory, or keep less with --checkpoint");
  const auto key = [](const StepPlanRow& row) { return std::tuple(row.sequence, row.ranks, row.step.seconds); };
  std::stable_sort(plan.rows.begin(), plan.rows.end(),
                   [&](const StepPlanRow& a, const StepPlanRow& b) { return key(a) < key(b); });
  return plan;
}

constexpr Column step_columns[] = {{"checkpoint", "checkpoint"},
                                   {"schedule", "schedule"},
                                   {"ranks", "ranks"},
                                   {"seq", "seq"},
                                   {"predicted", "seconds"},
                                   {"forward", "forward_s"},
                                   {"backward", "backward_s"},
                                   {"attention", "attention_s"},
                                   {"calls", "calls"},
                                   {"sent max", "bytes_sent_max"},
                                   {"kept", "peak_activation_bytes"},
                                   {"memory", "memory_bytes"},
                                   {"largest seq", "largest_seq"}};

std::string text_of(const std::vector<StepPlanRow>& rows) {
  FieldsOfRows fields = fields_of_rows(rows);
  for (std::size_t i = 0; i < rows.size(); ++i) fields[i].push_back(calls_cell(rows[i].step));
  return table_of(fields, step_columns).text();
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& model : step::built_in_models()) names.emplace_back(model.name);
  return names;
}

/// Help does not list them: the model may be left out, or described.
Values model_values() {
  return {"[MODEL]", [] { return choices_of(model_names()); }, ""};
}

std::string model_help() {
  return fmt::format(
      "A training step of this model instead, or with --paper its steps: {}, or "
      "layers=4,hidden=256,heads=4[,kv-heads=,ffn=,vocab=]",
      fmt::join(model_names(), " "));
}

}  // namespace

void add_step_plan_options(App& app, StepPlanOptions& options) {
  const auto parse_state = [](std::string_view option, std::string_view text) {
    return static_cast<step::StatePlacement>(parse_word(option, text, state_words));
  };
  const auto parse_policies = [](std::string_view option, std::string_view text) {
    auto names = parse_list(option, text);
    for (const std::string& name : names) step::checkpoint_policy(name);
    return names;
  };
  const auto take_model = [&options](const std::string& name) {
    options.asked = true;
    options.model = name;
  };
  auto* const model = app.add_optional_text("--step", take_model, model_help(), model_values(), Group::problem);
  for (const char* answered :
       {"--heads", "--kv-heads", "--head-dim", "--value-dim", "--seq-kv", "--scale", "--softcap", "--alibi",
        "--sink-logits", "--max-logit", "--dropout", "--shared-kv", "--latents", "--backward", "--routes", "--html"}) {
    model->excludes(app.get_option(answered));
  }
  add_value(app, "--checkpoint", options.policies, parse_policies, "Policies of the step (default: all)",
            some_of(policies_of({})), Group::schedule)
      ->needs(model);
  add_value(app, "--state", options.state, parse_state,
            "Weights and moments: sharded over ranks, or replicated as distattn step has them (default sharded)",
            one_of(state_words), rarely(Group::schedule))
      ->needs(model);
}

void print_step_plan(const StepPlanRequest& request, bool json) {
  if (request.options.model.empty()) refuse("--step names no model (and no --paper is given): name one");
  const Machine machine = machine_of(request.plan.schedule);
  const auto [rows, skipped] = predict(request, machine);
  note(fmt::format("predicted on {}: {}", machine.name, describe_age(machine)));
  note_skipped(skipped);
  std::vector<std::int64_t> needed;
  for (const StepPlanRow& row : rows) needed.push_back(row.step.memory_bytes);
  note_memory(needed, machine);
  if (json) {
    print_json(rows_json(rows));
  } else {
    print(text_of(rows));
  }
}

void print_step_paper(const std::string& paper, bool json) {
  const PaperTable table = step::compare_steps_with_paper(paper);
  if (json) {
    print_json(rows_json(figures_of(table)));
  } else {
    print(paper_text(table));
  }
}

}  // namespace distattn::cli
