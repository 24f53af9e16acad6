#pragma once
/// The papers' whole-model figures beside ours.

#include <string>

#include "distattn/papers.hpp"

namespace distattn::step {

/// Predicts what every row of the paper's data file asks for (papers/NAME.json in this folder). A row's quantity is
///   12.5                      a number
///   {"ratio": [a, b]}         a / b
///   {"figure": …, …}          a figure of a training step: seconds, forward_s, tokens_per_s, memory_bytes or
///                             largest_sequence; of one layer's forward: layer_attention_s, layer_other_s; or
///                             parameters
/// of a model (with fewer `layers` where they are given) with `tokens`, times `batch`, on `ranks` of a machine, by a
/// schedule under a checkpointing policy or by a baseline (megatron, ulysses, ring-self-attention, pipeline with its
/// stage). "by" names one of the file's methods, whose fields stand for those that are not given. 16-bit elements, on
/// the wire too; state sharded. Throws Error(usage) with the names there are for one that is not.
PaperTable compare_steps_with_paper(const std::string& name);

}  // namespace distattn::step
