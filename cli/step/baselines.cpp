#include "cli/step/baselines.hpp"

#include <algorithm>

#include "cli/step/work.hpp"
#include "cli/tools/baselines.hpp"
#include "cli/tools/links.hpp"

namespace distattn::step {
namespace {

// Passes over the scores that an attention in separate operations makes: products write or read them, scaling, masking
// and softmax read and write them; backward the same for their gradients.
constexpr double score_touches_forward = 8, score_touches_backward = 12;
// Backward: scores, probabilities and the gradients of both at once; forward: scores and probabilities, and what
// softmax takes in fp32.
constexpr double score_copies = 4;

double flops_per_s(const StepSetting& setting, const Machine& machine, Pass pass) {
  return machine.rates_of(setting.dtype, pass).full.points.back().flops_per_s;
}

double value_bytes(const StepSetting& setting) { return static_cast<double>(size_of(setting.dtype)); }

double tokens_of(const StepSetting& setting) {
  return static_cast<double>(setting.batch) * static_cast<double>(setting.sequence);
}

/// How much the work of heads grows by padding.
double padding(const StepSetting& setting) {
  return static_cast<double>(padded_heads(setting.shape.heads, setting.ranks)) / setting.shape.heads;
}

/// All layers' attention of one rank, when ranks share it evenly.
double attention_seconds(const StepSetting& setting, const Machine& machine, Pass pass) {
  const ModelShape& shape = setting.shape;
  const auto n = static_cast<double>(setting.sequence);
  const double pairs = static_cast<double>(setting.batch) * n * (n + 1) / 2 * shape.heads / setting.ranks;
  return shape.layers * pairs * flops_per_pair(shape.head_dim(), shape.head_dim(), pass) /
         flops_per_s(setting, machine, pass);
}

double state_bytes(const ModelShape& shape, int ranks) {
  return state_bytes_per_parameter * parameter_count(shape) / ranks;
}

double checkpointed_bytes(const StepSetting& setting, double tokens) {
  return activation_bytes(setting.shape, checkpoint_policy("layer"), tokens, value_bytes(setting)).compute;
}

/// Of a step whose ranks all use all weights, which are gathered beside the arithmetic as those of our own steps are.
double beside_state(double computing_s, const StepSetting& setting, const Machine& machine) {
  return std::max(computing_s, state_seconds(setting, machine));
}

/// What a first token needs: weights spread over `owners`; of a layer q, k, v, o and its output, and `more` bytes.
void count_first_token(const StepSetting& setting, int owners, double more, BaselineStep& step) {
  const double shard =
      value_bytes(setting) * tokens_of(setting) / setting.ranks * static_cast<double>(setting.shape.hidden);
  step.attention_bytes = 5 * shard + more;
  step.forward_memory_bytes = value_bytes(setting) * parameter_count(setting.shape) / owners + step.attention_bytes;
}

/// Attention in separate operations, of all scores, masked or not, which lie in memory.
struct ScoresInMemory {
  double forward_s = 0, backward_s = 0;
  double bytes = 0;  ///< of one layer's scores on one rank
};

ScoresInMemory scores_in_memory(const StepSetting& setting, const Machine& machine) {
  const double tokens = tokens_of(setting);
  ScoresInMemory scores;
  scores.bytes =
      tokens * static_cast<double>(setting.sequence) / setting.ranks * setting.shape.heads * value_bytes(setting);
  const double touch_s =
      machine.memory_bytes_per_s > 0 ? setting.shape.layers * scores.bytes / machine.memory_bytes_per_s : 0;
  const double products_s = 2 * attention_seconds(setting, machine, Pass::forward);
  scores.forward_s = products_s + score_touches_forward * touch_s;
  scores.backward_s = 2 * products_s + score_touches_backward * touch_s;
  return scores;
}

}  // namespace

BaselineStep megatron(const StepSetting& setting, const Machine& machine) {
  const ModelShape& shape = setting.shape;
  const double tokens = tokens_of(setting), p = setting.ranks, h = static_cast<double>(shape.hidden);
  DenseWork forward = forward_work(shape, tokens / p);
  forward.flops +=
      (padding(setting) - 1) * shape.layers * tokens / p * 4 * h * static_cast<double>(shape.hidden + shape.kv_width());
  const double dense_s = dense_seconds(forward, setting, machine);
  const double forward_s = padding(setting) * attention_seconds(setting, machine, Pass::forward);
  const double backward_s = padding(setting) * attention_seconds(setting, machine, Pass::backward);
  const double collective_s =
      shape.layers * ring_seconds(value_bytes(setting) * tokens * h * (p - 1) / p, setting.ranks, machine);

  BaselineStep step;
  step.forward_s = dense_s + forward_s + 4 * collective_s;
  step.seconds = 4 * dense_s + 2 * forward_s + backward_s + 14 * collective_s;
  // Gathered inputs are whole sequences; heads and ffn of a layer are this rank's.
  const double in_layer = 2 * tokens * h + tokens / p * (8 * h + 3 * static_cast<double>(shape.ffn));
  step.memory_bytes =
      state_bytes(shape, setting.ranks) + value_bytes(setting) * (shape.layers * tokens / p * h + in_layer);
  count_first_token(setting, setting.ranks, value_bytes(setting) * 2 * tokens * h, step);
  return step;
}

BaselineStep ulysses(const StepSetting& setting, const Machine& machine) {
  const ModelShape& shape = setting.shape;
  const double tokens = tokens_of(setting) / setting.ranks, h = static_cast<double>(shape.hidden), p = setting.ranks;
  const double dense_s = dense_seconds(forward_work(shape, tokens), setting, machine);
  const double forward_s = padding(setting) * attention_seconds(setting, machine, Pass::forward);
  const double backward_s = padding(setting) * attention_seconds(setting, machine, Pass::backward);
  const double sent = padding(setting) * value_bytes(setting) * 4 * tokens * h;
  const double exchange_s = shape.layers * exchange_seconds(sent * (p - 1) / p, setting.ranks, machine);

  BaselineStep step;
  step.forward_s = dense_s + forward_s + exchange_s;
  step.seconds = beside_state(4 * dense_s + 2 * forward_s + backward_s + 3 * exchange_s, setting, machine);
  step.memory_bytes = state_bytes(shape, setting.ranks) + sent + checkpointed_bytes(setting, tokens);
  count_first_token(setting, 1, sent, step);
  return step;
}

BaselineStep ring_self_attention(const StepSetting& setting, const Machine& machine) {
  const ModelShape& shape = setting.shape;
  const double tokens = tokens_of(setting), p = setting.ranks;
  const double dense_s = dense_seconds(forward_work(shape, tokens / p), setting, machine);
  const ScoresInMemory scores = scores_in_memory(setting, machine);
  const double keys = 2 * tokens * static_cast<double>(shape.kv_width()) * value_bytes(setting);
  const double ring_s = shape.layers * ring_seconds(keys * (p - 1) / p, setting.ranks, machine);

  BaselineStep step;
  step.forward_s = dense_s + scores.forward_s + ring_s;
  step.seconds = beside_state(4 * dense_s + 2 * scores.forward_s + scores.backward_s + 5 * ring_s, setting, machine);
  step.memory_bytes =
      state_bytes(shape, setting.ranks) + score_copies * scores.bytes + checkpointed_bytes(setting, tokens / p);
  count_first_token(setting, 1, score_copies * scores.bytes, step);
  return step;
}

BaselineStep burst_without_lao(const StepSetting& setting, const Machine& machine) {
  const ModelShape& shape = setting.shape;
  const double tokens = tokens_of(setting), p = setting.ranks;
  const double dense_s = dense_seconds(forward_work(shape, tokens / p), setting, machine);
  const ScoresInMemory scores = scores_in_memory(setting, machine);
  const double shard = tokens * static_cast<double>(shape.hidden) * value_bytes(setting) * (p - 1) / p;
  const double unit_s = shape.layers * ring_seconds(shard, setting.ranks, machine);
  const double forward_s = std::max(scores.forward_s, 2 * unit_s);

  BaselineStep step;
  step.forward_s = dense_s + forward_s;
  step.seconds = beside_state(4 * dense_s + 2 * forward_s + std::max(scores.backward_s, 3 * unit_s), setting, machine);
  step.memory_bytes =
      state_bytes(shape, setting.ranks) + score_copies * scores.bytes / p + checkpointed_bytes(setting, tokens / p);
  count_first_token(setting, 1, score_copies * scores.bytes / p, step);
  return step;
}

double pipeline_stage_bytes(const StepSetting& setting, int stage, int stages, int tensor_ranks) {
  const ModelShape& shape = setting.shape;
  const double tokens = tokens_of(setting) / tensor_ranks, h = static_cast<double>(shape.hidden);
  const double checkpoints = value_bytes(setting) * shape.layers / stages * tokens * h;
  const double in_layer =
      value_bytes(setting) * (2 * tokens * tensor_ranks * h + tokens * (8 * h + 3 * static_cast<double>(shape.ffn)));
  // The last stage has the logits and their gradient, in fp32.
  const double logits = stage + 1 == stages ? 2 * 4.0 * tokens * static_cast<double>(shape.vocab) : 0;
  return state_bytes(shape, setting.ranks) + (stages - stage) * checkpoints + in_layer + logits;
}

}  // namespace distattn::step
