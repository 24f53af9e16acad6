#pragma once
/// The decoder's work and memory in closed form: what layer.cpp computes and allocates, counted for one rank.

#include <cstdint>

#include "cli/step/checkpoint.hpp"
#include "cli/step/model.hpp"
#include "distattn/layout.hpp"

namespace distattn::step {

/// Work outside the attention. Values are those that norms, rotations and the like read and write; they take time by
/// memory, products take it by arithmetic.
struct DenseWork {
  double flops = 0;
  double values = 0;

  DenseWork& operator+=(const DenseWork& other) {
    flops += other.flops;
    values += other.values;
    return *this;
  }
  friend DenseWork operator*(double factor, DenseWork work) { return {factor * work.flops, factor * work.values}; }
};

/// All layers, embedding, head and loss, for `tokens` tokens.
DenseWork forward_work(const ModelShape& shape, double tokens);
/// The gradients' own work, without recomputation: every product twice.
DenseWork backward_work(const ModelShape& shape, double tokens);
/// What the backward computes again because the policy did not keep it, but for the attention.
DenseWork recomputed_work(const ModelShape& shape, const CheckpointPolicy& policy, double tokens);
/// Weights, gradients and two moments in fp32; or weights and gradients in 16 bits beside a master copy and moments in
/// fp32: either way as many bytes.
inline constexpr double state_bytes_per_parameter = 16;

/// Attention forwards of one layer and training step: 1, or 2 where (o, lse) are dropped.
int attention_forwards(const CheckpointPolicy& policy);

/// Tokens of one sequence that the fullest rank owns.
std::int64_t most_tokens(const Sharding& sharding);

/// Bytes of activations of a rank with `tokens` tokens; `value_bytes` a value, statistics in at least 4.
struct ActivationBytes {
  double kept = 0;     ///< from forward to backward, in the memory that computes
  double host = 0;     ///< from forward to backward, in host memory
  double compute = 0;  ///< in the memory that computes at the peak: kept and in use
};
ActivationBytes activation_bytes(const ModelShape& shape, const CheckpointPolicy& policy, double tokens,
                                 double value_bytes);

}  // namespace distattn::step
