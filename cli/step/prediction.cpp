#include "cli/step/prediction.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "cli/step/work.hpp"
#include "distattn/error.hpp"
#include "distattn/plan.hpp"
#include "distattn/table.hpp"

namespace distattn::step {
namespace {

// Weights, gradients and two moments in fp32, or in 16-bit training weights and gradients of 2 bytes beside a master
// copy and moments of 4: either way 16.
constexpr double state_bytes_per_parameter = 16;

std::int64_t whole(double value) { return static_cast<std::int64_t>(std::llround(value)); }

double sum(const std::vector<std::int64_t>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

PassPlan plan_one(const StepSetting& setting, const Recipe& recipe, const Problem& problem, Pass pass,
                  const Machine& machine) {
  const auto tiles = std::make_shared<const Tiles>(shard(problem, setting.ranks, recipe.layout, recipe.groups));
  return plan_pass(recipe, tiles, pass, setting.mode.value_or(recipe.mode), setting.routes, &machine, setting.threads);
}

/// Ranks that compute on the same cores share them.
double share_of_a_core(const StepSetting& setting, const Machine& machine) {
  if (machine.cores == 0) return 1;
  const double on_a_node = std::ceil(static_cast<double>(setting.ranks) / machine.nodes);
  return std::min(1.0, machine.cores / on_a_node);
}

double seconds_of(const DenseWork& work, const StepSetting& setting, const Machine& machine) {
  const double flops_per_s = machine.rates_of(setting.dtype, Pass::forward).full.points.back().flops_per_s;
  const double touched = work.values * static_cast<double>(size_of(setting.dtype));
  const double memory_s = machine.memory_bytes_per_s > 0 ? touched / machine.memory_bytes_per_s : 0;
  return (work.flops / flops_per_s + memory_s) / share_of_a_core(setting, machine);
}

/// Bytes that a rank sends for weights and gradients in one step.
double parameter_traffic(const StepSetting& setting, double parameters) {
  const double others = setting.ranks - 1;
  if (setting.state == StatePlacement::replicated) return others * parameters * sizeof(float);
  // Weights gathered in forward and backward, gradients scattered, each rank its part to every other.
  return 3 * others / setting.ranks * parameters * static_cast<double>(size_of(setting.dtype));
}

double traffic_seconds(double bytes, const StepSetting& setting, const Machine& machine) {
  if (setting.ranks == 1) return 0;
  const bool one_node = machine.nodes == 1 || setting.ranks <= machine.ranks_per_node;
  return bytes / (one_node ? machine.near : machine.far).bytes_per_s;
}

}  // namespace

AttentionCost attention_cost(const StepSetting& setting, const Machine& machine) {
  Problem problem = attention_problem(setting.shape, setting.sequence, causal_mask());
  problem.dtype = setting.dtype;
  problem.wire = setting.wire;
  check(problem);
  const auto resolved = resolve_pair(setting.schedule, problem, setting.ranks);
  if (const auto* reason = std::get_if<std::string>(&resolved)) {
    refuse("schedule " + setting.schedule + " does not apply (" + *reason + ") choose another");
  }
  const auto& pair = std::get<RecipePair>(resolved);
  const PassPlan forward = plan_one(setting, pair.forward, problem, Pass::forward, machine);
  const PassPlan backward = plan_one(setting, pair.backward, problem, Pass::backward, machine);
  const auto fullest = [](const PassPlan& plan) {
    const auto& bytes = plan.report.counts.memory_bytes;
    return *std::max_element(bytes.begin(), bytes.end());
  };
  AttentionCost cost;
  cost.schedule = setting.schedule;
  cost.forward_s = forward.predicted_s;
  cost.backward_s = backward.predicted_s;
  cost.forward_sent = forward.report.counts.bytes_sent;
  cost.backward_sent = backward.report.counts.bytes_sent;
  cost.buffer_bytes = fullest(forward) + fullest(backward);
  return cost;
}

StepPrediction predict_step(const StepSetting& setting, const CheckpointPolicy& policy, const AttentionCost& attention,
                            const Machine& machine) {
  const ModelShape& shape = setting.shape;
  const double tokens = std::ceil(static_cast<double>(setting.sequence) / setting.ranks);
  const auto parameters = static_cast<double>(parameter_count(parameters_of(shape)));
  const double traffic = parameter_traffic(setting, parameters);
  const double state =
      state_bytes_per_parameter * parameters / (setting.state == StatePlacement::sharded ? setting.ranks : 1);

  StepPrediction step;
  step.attention_forwards = shape.layers * attention_forwards(policy);
  step.attention_backwards = shape.layers;
  const double again_s = (step.attention_forwards - shape.layers) * attention.forward_s;
  DenseWork backward = backward_work(shape, tokens);
  backward += recomputed_work(shape, policy, tokens);
  step.forward_s = seconds_of(forward_work(shape, tokens), setting, machine) + shape.layers * attention.forward_s;
  step.backward_s = seconds_of(backward, setting, machine) + again_s + shape.layers * attention.backward_s;
  step.attention_s = step.attention_forwards * attention.forward_s + shape.layers * attention.backward_s;
  step.gradient_s = traffic_seconds(traffic, setting, machine);
  if (machine.memory_bytes_per_s > 0) step.optimizer_s = 1.75 * state / machine.memory_bytes_per_s;
  const double computing_s = step.forward_s + step.backward_s;
  step.seconds =
      step.optimizer_s + (setting.state == StatePlacement::replicated ? computing_s + step.gradient_s
                                                                      : std::max(computing_s, step.gradient_s));

  step.forward_bytes = whole(step.attention_forwards * sum(attention.forward_sent));
  step.backward_bytes = whole(step.attention_backwards * sum(attention.backward_sent));
  step.gradient_bytes = whole(setting.ranks * traffic);
  for (std::size_t rank = 0; rank < attention.forward_sent.size(); ++rank) {
    const std::int64_t sent = step.attention_forwards * attention.forward_sent[rank] +
                              step.attention_backwards * attention.backward_sent[rank] + whole(traffic);
    step.bytes_sent_max = std::max(step.bytes_sent_max, sent);
  }

  const ActivationBytes activations =
      activation_bytes(shape, policy, tokens, static_cast<double>(size_of(setting.dtype)));
  step.peak_activation_bytes = whole(activations.kept);
  step.peak_offloaded_bytes = whole(activations.host);
  step.peak_memory_bytes = whole(activations.compute);
  step.state_bytes = whole(state);
  const double grows = activations.compute + static_cast<double>(attention.buffer_bytes);
  step.memory_bytes = whole(state + grows);
  // Activations and attention buffers grow in proportion to the sequence.
  const double room = static_cast<double>(machine.memory_of_rank(setting.ranks)) - state;
  step.largest_sequence =
      std::max<std::int64_t>(0, static_cast<std::int64_t>(room / grows * static_cast<double>(setting.sequence)));
  return step;
}

}  // namespace distattn::step
