#include "step_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include "cli/step/models.hpp"
#include "cli/step/papers.hpp"
#include "cli/step/sequence_search.hpp"
#include "console.hpp"
#include "distattn/error.hpp"
#include "distattn/words.hpp"
#include "option.hpp"
#include "output.hpp"
#include "paper_report.hpp"
#include "prepared.hpp"
#include "values.hpp"

namespace distattn::cli {
namespace {

constexpr std::array<std::string_view, 2> state_words = {"replicated", "sharded"};

struct Row {
  std::string schedule, policy;
  int ranks = 1;
  std::int64_t sequence = 0;
  step::StepPrediction step;
  std::optional<std::int64_t> largest_sequence;  ///< nothing: not known
};

struct StepPlan {
  std::vector<Row> rows;
  std::vector<SkippedPlan> skipped;
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
  setting.threads = machine.threads_of_rank(ranks);
  setting.mode = each_mode(request.plan.schedule).front().mode;
  setting.routes = routes_of(request.plan.schedule, machine, ranks);
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

/// `auto` by the attention of one layer, both passes.
void choose(const StepPlanRequest& request, const Machine& machine, step::StepSetting& setting) {
  const AttentionOptions chosen = attention_options("auto", step::attention_problem_of(setting), setting.ranks,
                                                    setting.threads, request.plan.schedule, Passes::both, machine);
  setting.schedule = chosen.schedule;
  setting.routes = {chosen.node_size, *chosen.ahead};
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
      step::StepSetting setting = common;  // auto chooses routes that are not the next schedule's
      setting.schedule = schedule;
      try {
        add_schedule(setting);
      } catch (const TooManyMessages& refused) {
        plan_.skipped.push_back({schedule, refused.reason(), setting.ranks});
      }
    }
  }

 private:
  void add_schedule(step::StepSetting& setting) {
    if (setting.schedule == "auto") choose(request_, machine_, setting);
    const auto resolved = resolve_pair(setting.schedule, step::attention_problem_of(setting), setting.ranks);
    if (const auto* reason = std::get_if<std::string>(&resolved)) {
      plan_.skipped.push_back({setting.schedule, *reason, setting.ranks});
    } else {
      add_policies(setting);
    }
  }

  void add_policies(const step::StepSetting& setting) {
    const step::AttentionCost attention = step::attention_cost(setting, machine_);
    step::SequenceSearch sequences(setting, machine_);
    for (const std::string& name : policies_of(request_.options)) {
      const step::CheckpointPolicy& policy = step::checkpoint_policy(name);
      const step::StepPrediction step = step::predict_step(setting, policy, attention, machine_);
      if (setting.memory_bytes && step.memory_bytes > *setting.memory_bytes) {
        const std::string need = bytes_in_words(static_cast<double>(step.memory_bytes));
        plan_.skipped.push_back({fmt::format("{} under {}", setting.schedule, name),
                                 fmt::format("{} tokens need {}", setting.sequence, need), setting.ranks});
      } else {
        plan_.rows.push_back(
            {setting.schedule, name, setting.ranks, setting.sequence, step, sequences.longest(policy)});
      }
    }
  }

  const StepPlanRequest& request_;
  const Machine& machine_;
  StepPlan& plan_;
};

StepPlan predict(const StepPlanRequest& request, const Machine& machine) {
  if (request.plan.problem.seq.empty()) refuse("--seq is missing (a step needs a sequence) add it");
  if (request.plan.schedule.modes.size() > 1)
    refuse(fmt::format("--mode has several values ({}) give one", one_problem));
  StepPlan plan;
  for (const std::int64_t sequence : request.plan.problem.seq) {
    for (const std::int64_t ranks : request.plan.schedule.ranks) {
      StepPlanner(request, machine, plan).add(setting_of(request, machine, sequence, static_cast<int>(ranks)));
    }
  }
  if (plan.rows.empty())
    refuse_all("no step is left to plan", plan.skipped,
               "choose another schedule, other ranks, more memory, or keep less with --checkpoint");
  const auto key = [](const Row& row) { return std::tuple(row.sequence, row.ranks, row.step.seconds); };
  std::stable_sort(plan.rows.begin(), plan.rows.end(), [&](const Row& a, const Row& b) { return key(a) < key(b); });
  return plan;
}

Json json_of(const Row& row, const StepPlanOptions& options, const Machine& machine) {
  const step::StepPrediction& step = row.step;
  Json json = versioned_object();
  json["model"] = options.model;
  json["machine"] = machine.name;
  json["schedule"] = row.schedule;
  json["checkpoint"] = row.policy;
  json["state"] = state_words[static_cast<std::size_t>(options.state)];
  json["ranks"] = row.ranks;
  json["seq"] = row.sequence;
  json["seconds"] = step.seconds;
  json["forward_s"] = step.forward_s;
  json["backward_s"] = step.backward_s;
  json["attention_s"] = step.attention_s;
  json["gradient_s"] = step.gradient_s;
  json["optimizer_s"] = step.optimizer_s;
  json["attention_forwards"] = step.attention_forwards;
  json["attention_backwards"] = step.attention_backwards;
  json["forward_bytes"] = step.forward_bytes;
  json["backward_bytes"] = step.backward_bytes;
  json["gradient_bytes"] = step.gradient_bytes;
  json["bytes_sent_max"] = step.bytes_sent_max;
  json["peak_activation_bytes"] = step.peak_activation_bytes;
  json["peak_offloaded_bytes"] = step.peak_offloaded_bytes;
  json["peak_memory_bytes"] = step.peak_memory_bytes;
  json["state_bytes"] = step.state_bytes;
  json["memory_bytes"] = step.memory_bytes;
  json["largest_seq"] = row.largest_sequence ? Json(*row.largest_sequence) : Json(nullptr);
  return json;
}

std::string text_of(const std::vector<Row>& rows) {
  const auto bytes = [](std::int64_t count) { return bytes_in_words(static_cast<double>(count)); };
  Columns columns({"checkpoint", "schedule", "ranks", "seq", "predicted", "forward", "backward", "attention", "calls",
                   "sent max", "kept", "memory", "largest seq"});
  for (const Row& row : rows) {
    const step::StepPrediction& step = row.step;
    columns.add({row.policy, row.schedule, fmt::format("{}", row.ranks), fmt::format("{}", row.sequence),
                 seconds_in_words(step.seconds), seconds_in_words(step.forward_s), seconds_in_words(step.backward_s),
                 seconds_in_words(step.attention_s),
                 fmt::format("{}+{}", step.attention_forwards, step.attention_backwards), bytes(step.bytes_sent_max),
                 bytes(step.peak_activation_bytes), bytes(step.memory_bytes),
                 row.largest_sequence ? fmt::format("{}", *row.largest_sequence) : unknown_text});
  }
  return columns.text();
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& model : step::built_in_models()) names.emplace_back(model.name);
  return names;
}

/// Not of forms in the help: the model may be left out, or described.
Values model_values() { return {"[MODEL]", model_names, ""}; }

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
       {"--heads", "--kv-heads", "--head-dim", "--value-dim", "--seq-kv", "--scale", "--backward", "--routes"}) {
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
  if (request.options.model.empty()) refuse("--step names no model (and no --paper is given) name one");
  const Machine machine = machine_of(request.plan.schedule);
  const auto [rows, skipped] = predict(request, machine);
  note(fmt::format("predicted on {}: {}", machine.name, describe_age(machine)));
  note_skipped(skipped);
  std::vector<std::int64_t> needed;
  for (const Row& row : rows) needed.push_back(row.step.memory_bytes);
  note_memory(needed, machine);
  if (json) {
    Json array = Json::array();
    for (const Row& row : rows) array.push_back(json_of(row, request.options, machine));
    print_json(array);
  } else {
    print(text_of(rows));
  }
}

void print_step_paper(const std::string& paper, bool json) {
  const PaperTable table = step::compare_steps_with_paper(paper);
  if (json) {
    print_json(paper_json(table));
  } else {
    print(paper_text(table));
  }
}

}  // namespace distattn::cli
