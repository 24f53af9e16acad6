#include "cli/step/prediction.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "cli/tools/links.hpp"
#include "distattn/error.hpp"
#include "distattn/plan.hpp"

namespace distattn::step {
namespace {

/// A count of bytes.
std::int64_t whole(double value) {
  if (value >= 0x1p63)
    refuse("a rank's bytes of this step (sizes overflow 63 bits): choose a smaller model or sequence");
  return static_cast<std::int64_t>(std::llround(value));
}

double sum(const std::vector<std::int64_t>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

/// Bytes that a rank sends for weights and gradients in one step.
double parameter_traffic(const StepSetting& setting, double parameters) {
  const double others = setting.ranks - 1;
  if (setting.state == StatePlacement::replicated) return others * parameters * sizeof(float);
  // Weights gathered in forward and backward, gradients scattered, each rank its part to every other.
  return 3 * others / setting.ranks * parameters * static_cast<double>(size_of(setting.dtype));
}

}  // namespace

double dense_seconds(const DenseWork& work, const StepSetting& setting, const Machine& machine) {
  const double flops_per_s = machine.rates_of(setting.dtype, Pass::forward).full.points.back().flops_per_s;
  const double touched = work.values * static_cast<double>(size_of(setting.dtype));
  const double memory_s = machine.memory_bytes_per_s > 0 ? touched / machine.memory_bytes_per_s : 0;
  const double of_a_core =
      machine.cores == 0 ? 1 : std::min(1.0, machine.cores / static_cast<double>(machine.on_a_node(setting.ranks)));
  return (work.flops / flops_per_s + memory_s) / of_a_core;
}

Problem attention_problem_of(const StepSetting& setting) {
  Problem problem = attention_problem(setting.shape, setting.sequence, setting.mask);
  problem.batch = setting.batch;
  problem.dtype = setting.dtype;
  problem.wire = setting.wire;
  check(problem);
  return problem;
}

std::variant<AttentionCost, WhyNot> attention_cost(const StepSetting& setting, const Machine& machine) {
  ScheduleRequest request = setting.attention;
  request.machine = machine;
  const auto planned = plan(attention_problem_of(setting), setting.ranks, request);
  if (const auto* const why = std::get_if<WhyNot>(&planned)) return *why;
  const AttentionPlan& attention = std::get<AttentionPlan>(planned);
  const std::vector<PassPlan> passes = predict(attention, &machine, setting.attention.threads);
  const PassPlan &forward = passes.front(), &backward = passes.back();
  AttentionCost cost;
  cost.forward_s = forward.predicted_s;
  cost.backward_s = backward.predicted_s;
  cost.forward_sent = forward.counts.bytes_sent;
  cost.backward_sent = backward.counts.bytes_sent;
  cost.buffer_bytes = attention.memory_bytes();
  cost.forward_buffer_bytes = memory_side_by_side({&forward.counts});
  cost.tokens = most_tokens(attention.outline(Pass::forward).sharding);
  return cost;
}

namespace {

void predict_seconds(const StepSetting& setting, const CheckpointPolicy& policy, const AttentionCost& attention,
                     const Machine& machine, double tokens, StepPrediction& step) {
  const double repeats = setting.micro_batches;
  const auto passes_forward = static_cast<double>(step.attention_forwards);
  const auto passes_back = static_cast<double>(step.attention_backwards);
  DenseWork backward = backward_work(setting.shape, tokens);
  backward += recomputed_work(setting.shape, policy, tokens);
  step.forward_s = repeats * dense_seconds(forward_work(setting.shape, tokens), setting, machine) +
                   passes_back * attention.forward_s;
  step.backward_s = repeats * dense_seconds(backward, setting, machine) +
                    (passes_forward - passes_back) * attention.forward_s + passes_back * attention.backward_s;
  step.attention_s = passes_forward * attention.forward_s + passes_back * attention.backward_s;
  step.gradient_s = state_seconds(setting, machine);
  // Weights, gradients and moments are read, all but the gradients written: 7 values of the 4 that a parameter has.
  const double touched = 7.0 / 4 * static_cast<double>(step.state_bytes);
  step.optimizer_s = machine.memory_bytes_per_s > 0 ? touched / machine.memory_bytes_per_s : 0;
  const double computing_s = step.forward_s + step.backward_s;
  step.seconds =
      step.optimizer_s + (setting.state == StatePlacement::replicated ? computing_s + step.gradient_s
                                                                      : std::max(computing_s, step.gradient_s));
}

void predict_bytes(const StepSetting& setting, const AttentionCost& attention, double traffic, StepPrediction& step) {
  const auto forwards = static_cast<double>(step.attention_forwards);
  const auto backwards = static_cast<double>(step.attention_backwards);
  step.forward_bytes = whole(forwards * sum(attention.forward_sent));
  step.backward_bytes = whole(backwards * sum(attention.backward_sent));
  step.gradient_bytes = whole(setting.ranks * traffic);
  for (std::size_t rank = 0; rank < attention.forward_sent.size(); ++rank) {
    const double sent = forwards * static_cast<double>(attention.forward_sent[rank]) +
                        backwards * static_cast<double>(attention.backward_sent[rank]) + traffic;
    step.bytes_sent_max = std::max(step.bytes_sent_max, whole(sent));
  }
}

ActivationBytes activations_of(const StepSetting& setting, const CheckpointPolicy& policy, double tokens) {
  return activation_bytes(setting.shape, policy, tokens, static_cast<double>(size_of(setting.dtype)));
}

void predict_memory(const StepSetting& setting, const CheckpointPolicy& policy, const AttentionCost& attention,
                    const Machine& machine, double tokens, StepPrediction& step) {
  const ActivationBytes activations = activations_of(setting, policy, tokens);
  step.peak_activation_bytes = whole(activations.kept);
  step.peak_offloaded_bytes = whole(activations.host);
  step.peak_memory_bytes = whole(activations.compute);
  step.memory_bytes =
      whole(static_cast<double>(step.state_bytes) + activation_memory(setting, policy, tokens, machine) +
            static_cast<double>(attention.buffer_bytes));
}

}  // namespace

double state_seconds(const StepSetting& setting, const Machine& machine) {
  return ring_seconds(parameter_traffic(setting, parameter_count(setting.shape)), setting.ranks, machine);
}

std::int64_t state_bytes(const StepSetting& setting) {
  return whole(state_bytes_per_parameter * parameter_count(setting.shape) /
               (setting.state == StatePlacement::sharded ? setting.ranks : 1));
}

double activation_memory(const StepSetting& setting, const CheckpointPolicy& policy, double tokens,
                         const Machine& machine) {
  const ActivationBytes activations = activations_of(setting, policy, tokens);
  return activations.compute + (machine.cores > 0 ? activations.host : 0);
}

std::int64_t memory_of_rank(const StepSetting& setting, const Machine& machine) {
  return setting.memory_bytes.value_or(machine.memory_of_rank(setting.ranks));
}

StepPrediction predict_step(const StepSetting& setting, const CheckpointPolicy& policy, const AttentionCost& attention,
                            const Machine& machine) {
  const double tokens = static_cast<double>(setting.batch) * static_cast<double>(attention.tokens);
  const auto parameters = parameter_count(setting.shape);
  const double traffic = parameter_traffic(setting, parameters);
  StepPrediction step;
  step.attention_backwards = std::int64_t{setting.micro_batches} * setting.shape.layers;
  step.attention_forwards = step.attention_backwards * attention_forwards(policy);
  step.state_bytes = state_bytes(setting);
  predict_seconds(setting, policy, attention, machine, tokens, step);
  predict_bytes(setting, attention, traffic, step);
  predict_memory(setting, policy, attention, machine, tokens, step);
  return step;
}

}  // namespace distattn::step
