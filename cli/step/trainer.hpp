#pragma once
/// Training steps of the decoder, its sequence sharded over ranks: forward, loss, backward, sum, AdamW.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cli/step/decoder.hpp"
#include "cli/step/model.hpp"
#include "cli/step/sharded_attention.hpp"
#include "cli/step/step_costs.hpp"
#include "cli/step/tokens.hpp"
#include "distattn/bootstrap.hpp"

namespace distattn::step {

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
