#pragma once
/// Other ways to train on long sequences, as formulas: what the papers compare with. Causal attention, state sharded.

#include <cstdint>

#include "cli/step/prediction.hpp"

namespace distattn::step {

struct BaselineStep {
  double forward_s = 0;  ///< alone: the latency of a first token
  double seconds = 0;    ///< of a training step that keeps every layer's x and recomputes the layer
  double memory_bytes = 0;
  double attention_bytes = 0;  ///< of one layer's forward on one rank: q, k, v, o, its output, and what more is kept
  double forward_memory_bytes = 0;  ///< while a first token is computed: 16-bit weights and attention_bytes
};

/// Megatron-LM: tensor parallelism over heads and ffn, sequence parallelism between, FlashAttention. Heads are padded
/// to a multiple of the ranks; a layer gathers and scatters N·h values 4 times forward and 6 times backward, none of it
/// during arithmetic, and 4 times more for what is recomputed (DistFlashAttn appendix C: 10, 14 with checkpointing).
BaselineStep megatron(const StepSetting& setting, const Machine& machine);

/// DeepSpeed-Ulysses: sequence-parallel layers, attention by heads, padded as above; 4·N·h/P values a worker by
/// all-to-all in each pass.
BaselineStep ulysses(const StepSetting& setting, const Machine& machine);

/// Ring Self-Attention: a rank's N²/P scores in memory, all of them computed though half are masked; keys and values
/// travel once forward and three times as much backward (2 + 6).
BaselineStep ring_self_attention(const StepSetting& setting, const Machine& machine);

/// BurstAttention without its local optimization: ring/burst, but a tile's (N/P)² scores lie in memory and are computed
/// in separate operations. Messages go during the arithmetic (its proposition C.5: the longer of both counts).
BaselineStep burst_without_lao(const StepSetting& setting, const Machine& machine);

/// Bytes of one rank of stage `stage` (0-based) of `stages` in 1F1B pipelining over tensor parallelism of
/// `tensor_ranks`, the ranks that are left data-parallel with the state sharded over all: a stage keeps the checkpoints
/// of as many micro-batches as there are stages from it to the end.
double pipeline_stage_bytes(const StepSetting& setting, int stage, int stages, int tensor_ranks);

}  // namespace distattn::step
