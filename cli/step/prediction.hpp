#pragma once
/// A training step as it would be on a described machine: seconds, bytes and memory, nothing computed.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/step/checkpoint.hpp"
#include "cli/step/model.hpp"
#include "cli/step/step_costs.hpp"
#include "cli/step/work.hpp"
#include "distattn/machine.hpp"
#include "distattn/request.hpp"

namespace distattn::step {

/// Where weights, gradients and AdamW's moments live.
enum class StatePlacement : std::uint8_t {
  replicated,  ///< all on every rank, gradients summed after the backward: what `distattn step` runs
  sharded,     ///< spread over the ranks and gathered layer by layer during the arithmetic (FSDP, ZeRO-3)
};

struct StepSetting {
  ModelShape shape;
  std::int64_t sequence = 0;
  std::int64_t batch = 1;
  int micro_batches = 1;  ///< batches one after the other before gradients are summed
  Mask mask = causal_mask();
  /// The mask at another length, or nothing where there is none; absent: the same one serves every length.
  std::function<std::optional<Mask>(std::int64_t sequence)> mask_at;
  int ranks = 1;
  /// The schedule of every layer's attention, both passes; the step's own memory counts, not the request's.
  ScheduleRequest attention{.schedule = "balanced", .passes = Passes::both, .node_size = 0, .threads = 1};
  DType dtype = DType::fp32;  ///< of activations, products and attention
  DType wire = DType::fp32;   ///< of partials and gradients of the attention
  StatePlacement state = StatePlacement::replicated;
  std::optional<std::int64_t> memory_bytes;  ///< most that a rank may use; default: what the machine has
};

/// What every layer's attention computes.
Problem attention_problem_of(const StepSetting& setting);

/// One rank's seconds for work outside the attention: products at the rate of a full attention tile of the same type,
/// everything else at the rate of memory; ranks that compute on the same cores share them.
double dense_seconds(const DenseWork& work, const StepSetting& setting, const Machine& machine);

/// Every layer's attention, planned and simulated.
struct AttentionCost {
  double forward_s = 0, backward_s = 0;
  std::vector<std::int64_t> forward_sent, backward_sent;  ///< bytes by rank
  std::int64_t buffer_bytes = 0;                          ///< of the rank that needs most, both programs
  std::int64_t forward_buffer_bytes = 0;                  ///< the same of the forward program
  std::int64_t tokens = 0;                                ///< of a sequence, on the rank that owns most
};

std::variant<AttentionCost, WhyNot> attention_cost(const StepSetting& setting, const Machine& machine);

StepPrediction predict_step(const StepSetting& setting, const CheckpointPolicy& policy, const AttentionCost& attention,
                            const Machine& machine);

/// Seconds in which a step's weights and gradients travel: during the arithmetic where the state is sharded.
double state_seconds(const StepSetting& setting, const Machine& machine);
/// Bytes of a rank's weights, gradients and moments.
std::int64_t state_bytes(const StepSetting& setting);
/// Bytes that activations of `tokens` tokens take of what memory_of_rank() says: where ranks compute on cores, host
/// memory is no other.
double activation_memory(const StepSetting& setting, const CheckpointPolicy& policy, double tokens,
                         const Machine& machine);
/// Bytes that a rank of the machine may use.
std::int64_t memory_of_rank(const StepSetting& setting, const Machine& machine);

}  // namespace distattn::step
