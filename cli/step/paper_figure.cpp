#include "cli/step/paper_figure.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/step/baselines.hpp"
#include "cli/step/models.hpp"
#include "cli/step/prediction.hpp"
#include "cli/step/sequence_search.hpp"
#include "distattn/error.hpp"

namespace distattn::step {
namespace {

using nlohmann::json;

[[noreturn]] void not_understood(const std::string& what, const json& fields) {
  refuse("a paper's data has an unknown " + what + " (" + fields.dump() + "): correct it");
}

void require_known(const json& fields) {
  constexpr std::string_view known[] = {"figure",     "model",    "layers",   "ranks",        "tokens",
                                        "batch",      "machine",  "mask",     "state",        "micro_batches",
                                        "checkpoint", "schedule", "baseline", "mode",         "routed",
                                        "network",    "stages",   "stage",    "tensor_ranks", "memory_bytes"};
  for (const auto& [name, value] : fields.items()) {
    if (std::find(std::begin(known), std::end(known), name) == std::end(known))
      not_understood("'" + name + "'", fields);
  }
}

Mode mode_named(const std::string& name, const json& fields) {
  for (const Mode mode : {Mode::overlapped, Mode::serial, Mode::gathered}) {
    if (name == name_of(mode)) return mode;
  }
  not_understood("mode", fields);
}

StepSetting setting_of(const json& fields, const Machine& machine) {
  StepSetting setting;
  setting.shape = find_model(fields.at("model").get<std::string>());
  setting.shape.layers = fields.value("layers", setting.shape.layers);
  setting.ranks = fields.at("ranks").get<int>();
  setting.sequence = fields.at("tokens").get<std::int64_t>();
  setting.batch = fields.value("batch", std::int64_t{1});
  setting.micro_batches = fields.value("micro_batches", 1);
  setting.attention.schedule = fields.value("schedule", std::string("balanced"));
  if (fields.contains("mode")) setting.attention.mode = mode_named(fields.at("mode").get<std::string>(), fields);
  const auto mask = fields.value("mask", std::string("causal"));
  if (mask != "causal" && mask != "full") not_understood("mask", fields);
  if (mask == "full") setting.mask = full_mask();
  if (fields.value("routed", false)) setting.attention.node_size = machine.ranks_per_node;
  setting.dtype = setting.wire = DType::bf16;
  const auto state = fields.value("state", std::string("sharded"));
  if (state != "sharded" && state != "replicated") not_understood("state", fields);
  setting.state = state == "sharded" ? StatePlacement::sharded : StatePlacement::replicated;
  return setting;
}

/// The largest sequence whose bytes fit, by halves: bytes grow with it.
double largest_sequence(StepSetting setting, double memory_bytes,
                        const std::function<double(const StepSetting&)>& bytes) {
  std::int64_t fits = 0, too_large = std::int64_t{1} << 32;
  while (too_large - fits > 1) {
    setting.sequence = fits + (too_large - fits) / 2;
    (bytes(setting) <= memory_bytes ? fits : too_large) = setting.sequence;
  }
  return static_cast<double>(fits);
}

/// The longest of lengths that double from one to the next.
double doubled(double longest) {
  return static_cast<double>(std::bit_floor(static_cast<std::uint64_t>(std::max(longest, 0.0))));
}

double baseline_figure(const std::string& name, const std::string& figure, const StepSetting& setting,
                       const Machine& machine, const json& fields) {
  const auto step_of = [&](const StepSetting& of) {
    if (name == "megatron") return megatron(of, machine);
    if (name == "ulysses") return ulysses(of, machine);
    if (name == "ring-self-attention") return ring_self_attention(of, machine);
    if (name == "burst-without-lao") return burst_without_lao(of, machine);
    not_understood("baseline", fields);
  };
  const auto bytes_of = [&](const StepSetting& of) {
    if (name != "pipeline") return step_of(of).memory_bytes;
    const int stages = fields.at("stages").get<int>(), tensor_ranks = fields.at("tensor_ranks").get<int>();
    if (fields.contains("stage")) return pipeline_stage_bytes(of, fields.at("stage").get<int>(), stages, tensor_ranks);
    double fullest = 0;
    for (int stage = 0; stage < stages; ++stage) {
      fullest = std::max(fullest, pipeline_stage_bytes(of, stage, stages, tensor_ranks));
    }
    return fullest;
  };
  if (figure == "memory_bytes") return bytes_of(setting);
  if (figure == "largest_sequence")
    return largest_sequence(setting, static_cast<double>(machine.memory_bytes), bytes_of);
  if (figure == "largest_doubled")
    return doubled(largest_sequence(setting, static_cast<double>(machine.memory_bytes), bytes_of));
  if (figure == "attention_bytes") return step_of(setting).attention_bytes;
  if (figure == "forward_memory_bytes") return step_of(setting).forward_memory_bytes;
  if (figure == "seconds") return step_of(setting).seconds;
  if (figure == "forward_s") return step_of(setting).forward_s;
  not_understood("figure", fields);
}

/// The forward's buffers, which hold q, k, v and o too, and the output's projection.
double attention_bytes(const StepSetting& setting, const AttentionCost& attention) {
  const auto values = static_cast<double>(setting.batch * attention.tokens * setting.shape.hidden);
  return static_cast<double>(attention.forward_buffer_bytes) + values * static_cast<double>(size_of(setting.dtype));
}

double step_figure(const std::string& figure, const StepSetting& setting, const Machine& machine, const json& fields) {
  const AttentionCost attention = or_refuse(attention_cost(setting, machine));
  if (figure == "layer_attention_s") return attention.forward_s;
  if (figure == "attention_bytes") return attention_bytes(setting, attention);
  if (figure == "layer_other_s") {
    const double tokens = static_cast<double>(setting.sequence) / setting.ranks;
    return dense_seconds(forward_work(setting.shape, tokens), setting, machine) / setting.shape.layers;
  }
  const auto& policy = checkpoint_policy(fields.value("checkpoint", std::string("attention-output")));
  const StepPrediction step = predict_step(setting, policy, attention, machine);
  if (figure == "seconds") return step.seconds;
  if (figure == "forward_s") return step.forward_s;
  if (figure == "tokens_per_s") return static_cast<double>(setting.batch * setting.sequence) / step.seconds;
  if (figure == "memory_bytes") return static_cast<double>(step.memory_bytes);
  const auto longest = static_cast<double>(SequenceSearch(setting, machine).longest(policy).value_or(0));
  if (figure == "largest_sequence") return longest;
  if (figure == "largest_doubled") return doubled(longest);
  not_understood("figure", fields);
}

Machine machine_of(const json& fields) {
  Machine machine = find_machine(fields.at("machine").get<std::string>());
  const auto bytes = fields.value("memory_bytes", static_cast<double>(machine.memory_bytes));
  machine.memory_bytes = static_cast<std::int64_t>(bytes);
  if (!fields.value("network", true)) machine.near = machine.far = {std::numeric_limits<double>::max(), 0};
  return machine;
}

double model_figure(const std::string& figure, const json& fields) {
  const ModelShape shape = find_model(fields.at("model").get<std::string>());
  if (figure == "parameters") return parameter_count(shape);
  const auto h = static_cast<double>(shape.hidden), kv = static_cast<double>(shape.kv_width());
  return (2 * h * h + 2 * h * kv) / fields.at("ranks").get<int>();
}

}  // namespace

PaperValue paper_figure(const std::string& quantity) {
  const json fields = json::parse(quantity);
  require_known(fields);
  const auto figure = fields.at("figure").get<std::string>();
  if (figure == "parameters" || figure == "layer_attention_parameters")
    return {model_figure(figure, fields), PaperKind::counted};
  const Machine machine = machine_of(fields);
  const StepSetting setting = setting_of(fields, machine);
  if (!fields.contains("baseline")) return {step_figure(figure, setting, machine, fields), PaperKind::predicted};
  const auto baseline = fields.at("baseline").get<std::string>();
  return {baseline_figure(baseline, figure, setting, machine, fields), PaperKind::modelled};
}

}  // namespace distattn::step
