#pragma once
/// What one rank holds: its tokens of every tensor, segment after segment.

#include <cstddef>
#include <span>
#include <vector>

#include "cli/run/inputs.hpp"
#include "distattn/choose.hpp"
#include "distattn/engine.hpp"
#include "distattn/layout.hpp"

namespace distattn::cli {

class RankTensors {
 public:
  /// Reads the rank's tokens in the problem's element type, with up to `threads` threads; results are in its
  /// accumulator's.
  RankTensors(const Sharding& sharding, Rank rank, const Inputs& inputs, Passes passes, int threads);

  Rank rank() const { return rank_; }

  /// Valid as long as this object stays where it is.
  Bindings bindings();

  /// A result as a dense local tensor. Positions of its tokens: positions(segments, rank()).
  ConstTensorView o() const { return view(o_, accumulator_, heads_, value_dim_, queries_); }
  ConstTensorView dq() const { return view(dq_, accumulator_, heads_, head_dim_, queries_); }
  ConstTensorView dk() const { return view(dk_, accumulator_, kv_heads_, head_dim_, keys_); }
  ConstTensorView dv() const { return view(dv_, accumulator_, kv_heads_, value_dim_, keys_); }
  ConstTensorView lse() const;
  /// This rank's shares.
  ConstTensorView max_logit() const { return dense_view(max_logit_.data(), accumulator_, batch_, 1, heads_, 1); }
  ConstTensorView dsink_logits() const { return heads_view(dsink_logits_.data(), accumulator_, heads_); }

  /// Bytes that all ranks together hold.
  static double total_bytes(const Problem& problem, Passes passes);

 private:
  using Bytes = std::vector<std::byte>;

  ConstTensorView view(const Bytes& bytes, DType dtype, std::int64_t heads, std::int64_t dim,
                       std::int64_t tokens) const {
    return dense_view(bytes.data(), dtype, batch_, tokens, heads, dim);
  }
  TensorView view(Bytes& bytes, DType dtype, std::int64_t heads, std::int64_t dim, std::int64_t tokens) {
    return dense_view(bytes.data(), dtype, batch_, tokens, heads, dim);
  }

  Rank rank_;
  std::uint64_t dropout_seed_;
  DType dtype_, accumulator_;
  std::int64_t batch_, queries_ = 0, keys_ = 0;
  std::int64_t heads_, kv_heads_, head_dim_, value_dim_;
  bool shared_kv_;  ///< then v_ and dv_ are empty
  Bytes q_, k_, v_, d_o_, o_, lse_, lse_low_, dq_, dk_, dv_, sink_logits_, dsink_logits_, max_logit_;
};

}  // namespace distattn::cli
