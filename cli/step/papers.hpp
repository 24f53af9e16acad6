#pragma once
/// The papers' whole-model figures next to ours.

#include <string>

#include "cli/tools/papers.hpp"

namespace distattn::step {

/// Predicts what every row of the paper's data file asks for (papers/NAME.json in this folder, read by read_paper). Its
/// quantities are {"figure": …, …}: a figure
///   of a training step      seconds, forward_s, tokens_per_s, memory_bytes, largest_sequence; largest_doubled (the
///                           largest power of two that fits)
///   of a first token        forward_s; forward_memory_bytes (of a baseline)
///   of one layer's forward  layer_attention_s, layer_other_s; attention_bytes (q, k, v, o, its output and buffers)
///   of the model            parameters; layer_attention_parameters (of a layer's attention, sharded over `ranks`)
/// of a model (with fewer `layers` where they are given) with `tokens`, times `batch`, on `ranks` of a machine (with
/// other memory_bytes; "network": false: links that take no time), by a schedule under a checkpointing policy, its
/// state sharded unless it is "replicated", or by a baseline (megatron, ulysses, ring-self-attention,
/// burst-without-lao, pipeline with its stage). 16-bit elements, on the wire too. Throws Error(usage) with the names
/// there are for one that is not.
PaperTable compare_steps_with_paper(const std::string& name);

}  // namespace distattn::step
