#pragma once
/// The decoder's attention over ranks, through the library: calls counted and timed.

#include "cli/step/model.hpp"
#include "cli/step/rank_attention.hpp"
#include "distattn/attention.hpp"

namespace distattn::step {

/// Calls and seconds of one rank, both passes together where not named.
struct AttentionUse {
  int forwards = 0, backwards = 0;
  double seconds = 0;
};

class ShardedAttention final : public RankAttention<float> {
 public:
  /// `attention` was made for attention_problem(), backward prepared; both must outlive this.
  ShardedAttention(const ModelShape& shape, Attention& attention);

  void forward(const AttentionInputs<float>& in, float* o, float* lse) override;
  void backward(const AttentionInputs<float>& in, const float* o, const float* lse, const float* d_o, float* dq,
                float* dk, float* dv) override;

  const AttentionUse& use() const { return use_; }
  void reset_use() { use_ = {}; }

 private:
  Bindings bind(const AttentionInputs<float>& in, const float* o, const float* lse) const;

  const ModelShape& shape_;
  Attention& attention_;
  std::int64_t tokens_;
  AttentionUse use_;
};

}  // namespace distattn::step
