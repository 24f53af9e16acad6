#include "cli/step/paper_figure.hpp"

#include <cmath>
#include <functional>

#include "cli/step/baselines.hpp"
#include "cli/step/models.hpp"
#include "cli/step/prediction.hpp"
#include "cli/step/sequence_search.hpp"
#include "distattn/error.hpp"

namespace distattn::step {
namespace {

using nlohmann::json;

[[noreturn]] void not_understood(const std::string& what, const json& fields) {
  refuse("a paper's data has an unknown " + what + " (" + fields.dump() + ") correct it");
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
  setting.schedule = fields.value("schedule", std::string("balanced"));
  if (fields.contains("mode")) setting.mode = mode_named(fields.at("mode").get<std::string>(), fields);
  if (fields.value("mask", std::string("causal")) == "full") setting.mask = full_mask();
  if (fields.value("routed", false)) setting.routes.node_size = machine.ranks_per_node;
  setting.dtype = setting.wire = DType::bf16;
  setting.state = StatePlacement::sharded;
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

double baseline_figure(const std::string& name, const std::string& figure, const StepSetting& setting,
                       const Machine& machine, const json& fields) {
  const auto step_of = [&](const StepSetting& of) {
    if (name == "megatron") return megatron(of, machine);
    if (name == "ulysses") return ulysses(of, machine);
    if (name == "ring-self-attention") return ring_self_attention(of, machine);
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
  if (figure == "seconds") return step_of(setting).seconds;
  if (figure == "forward_s") return step_of(setting).forward_s;
  not_understood("figure", fields);
}

double step_figure(const std::string& figure, const StepSetting& setting, const Machine& machine, const json& fields) {
  const AttentionCost attention = attention_cost(setting, machine);
  const auto& policy = checkpoint_policy(fields.value("checkpoint", std::string("attention-output")));
  const StepPrediction step = predict_step(setting, policy, attention, machine);
  if (figure == "seconds") return step.seconds;
  if (figure == "forward_s") return step.forward_s;
  if (figure == "tokens_per_s") return static_cast<double>(setting.batch * setting.sequence) / step.seconds;
  if (figure == "memory_bytes") return static_cast<double>(step.memory_bytes);
  if (figure == "largest_sequence")
    return static_cast<double>(SequenceSearch(setting, machine).longest(policy).value_or(0));
  if (figure == "layer_attention_s") return attention.forward_s;
  if (figure == "layer_other_s") {
    const double tokens = static_cast<double>(setting.sequence) / setting.ranks;
    return dense_seconds(forward_work(setting.shape, tokens), setting, machine) / setting.shape.layers;
  }
  not_understood("figure", fields);
}

}  // namespace

Machine PaperFigures::machine(const json& fields) const {
  const auto name = fields.at("machine").get<std::string>();
  const auto found = machines_.find(name);
  Machine machine = found != machines_.end() ? found->second : find_machine(name);
  machine.memory_bytes =
      static_cast<std::int64_t>(fields.value("memory_bytes", static_cast<double>(machine.memory_bytes)));
  return machine;
}

double PaperFigures::compute(const json& quantity) const {
  if (quantity.is_number()) return quantity.get<double>();
  if (quantity.contains("ratio")) return compute(quantity.at("ratio").at(0)) / compute(quantity.at("ratio").at(1));
  json fields = quantity.contains("by") ? methods_.at(quantity.at("by").get<std::string>()) : json::object();
  fields.update(quantity);
  return figure(fields);
}

double PaperFigures::figure(const json& fields) const {
  const auto name = fields.at("figure").get<std::string>();
  if (name == "parameters") return parameter_count(find_model(fields.at("model").get<std::string>()));
  const Machine on = machine(fields);
  const StepSetting setting = setting_of(fields, on);
  if (!fields.contains("baseline")) return step_figure(name, setting, on, fields);
  return baseline_figure(fields.at("baseline").get<std::string>(), name, setting, on, fields);
}

}  // namespace distattn::step
