#pragma once
/// The attention of one rank as a layer calls it: the only part of the decoder that crosses ranks.

namespace distattn::step {

/// Arrays are dense, in the order of the rank's tokens: q, o [tokens][heads][head_dim], k, v
/// [tokens][kv_heads][head_dim], lse [2][heads][tokens]: the LSE and, unless T is double, what a float cannot hold of
/// it.
template <class T>
struct AttentionInputs {
  const T *q, *k, *v;
};

template <class T>
class RankAttention {
 public:
  virtual ~RankAttention() = default;
  virtual void forward(const AttentionInputs<T>& in, T* o, T* lse) = 0;
  /// From the (o, lse) that forward() gave for the same inputs, kept by the caller: no forward is run again.
  virtual void backward(const AttentionInputs<T>& in, const T* o, const T* lse, const T* d_o, T* dq, T* dk, T* dv) = 0;
};

}  // namespace distattn::step
