#pragma once
/// The decoder on one rank's tokens: loss and gradients under a checkpointing policy.

#include <cstdint>
#include <span>
#include <vector>

#include "cli/step/layer.hpp"

namespace distattn::step {

/// A rank's tokens of one step: what it reads, and what each should predict (no_target where there is no successor).
struct TokenBatch {
  std::vector<std::int32_t> tokens, targets;
};

/// T is float, or double for the step that gradients are compared with. One thread a decoder.
template <class T>
class Decoder {
 public:
  /// `positions` are those of the rank's tokens in the whole sequence, in the order of its shard. Shape, attention and
  /// policy must outlive the decoder.
  Decoder(const ModelShape& shape, std::span<const std::int64_t> positions, RankAttention<T>& attention,
          const CheckpointPolicy& policy);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Σ of the losses of this rank's tokens; the gradient is that of `weight` times the sum. Holds what the policy
  /// keeps until backward(), which must follow with the same weights.
  double forward(const Weights<const T>& weights, const TokenBatch& batch, double weight);
  /// Adds this rank's part of every parameter's gradient.
  void backward(const Weights<const T>& weights, const TokenBatch& batch, const Weights<T>& gradients);

  ActivationMemory& memory() { return memory_; }

 private:
  const ModelShape& shape_;
  std::int64_t tokens_;
  kernels::dense::RotaryTable<T> rope_;
  const CheckpointPolicy& policy_;
  ActivationMemory memory_;
  LayerContext<T> context_;
  std::vector<Activations<T>> held_;  // by layer, between forward and backward
  Tensor<T> last_x_, dlogits_;
};

}  // namespace distattn::step
