#pragma once
/// Training steps of the decoder, its sequence sharded over ranks: forward, loss, backward, sum, AdamW.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cli/step/decoder.hpp"
#include "cli/step/model.hpp"
#include "cli/step/sharded_attention.hpp"
#include "cli/step/tokens.hpp"
#include "distattn/bootstrap.hpp"

namespace distattn::step {

/// One training step. Seconds and memory are those of the slowest and the fullest rank; calls are one rank's; bytes
/// are those that all ranks together hand to others, but for bytes_sent_max.
struct StepReport {
  int step = 0;
  double loss = 0;
  double grad_norm = 0;
  double seconds = 0, forward_s = 0, backward_s = 0, attention_s = 0, gradient_s = 0, optimizer_s = 0;
  int attention_forwards = 0, attention_backwards = 0;
  std::int64_t forward_bytes = 0, backward_bytes = 0, gradient_bytes = 0;
  std::int64_t bytes_sent_max = 0;         ///< of the busiest rank, all of the above
  std::int64_t peak_activation_bytes = 0;  ///< kept from forward to backward
  std::int64_t peak_offloaded_bytes = 0;   ///< kept in host memory instead
  std::int64_t peak_memory_bytes = 0;      ///< all activations, those in use at the moment too
};

/// One rank of a training run. All ranks hold the same parameters and update them alike. Every method that says so is
/// a collective. References must outlive it.
class Trainer {
 public:
  Trainer(const ModelShape& shape, const CheckpointPolicy& policy, const TokenSource& tokens, std::uint64_t seed,
          Attention& attention, Bootstrap& bootstrap);

  /// The next step, counted from 0. `inspect` is called between gradients and update, outside of all times. Collective.
  StepReport run_step(const std::function<void()>& inspect = {});

  std::span<const Parameter> parameters() const { return parameters_; }
  std::span<const float> values() const { return values_; }
  /// Of the last step: summed over ranks, the same bits on all of them.
  std::span<const float> gradients() const { return gradients_; }

 private:
  struct RankFigures;
  void compute_gradients(const TokenBatch& batch, RankFigures& figures);
  void update();
  StepReport combine(const RankFigures& mine) const;

  const ModelShape& shape_;
  const TokenSource& tokens_;
  Attention& library_attention_;
  Bootstrap& bootstrap_;
  std::vector<std::int64_t> positions_;
  ShardedAttention attention_;
  Decoder<float> decoder_;
  std::vector<Parameter> parameters_;
  std::vector<float> values_, gradients_, first_moment_, second_moment_;
  std::int64_t sequence_;
  int steps_ = 0;
};

}  // namespace distattn::step
