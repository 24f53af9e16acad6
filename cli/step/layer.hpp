#pragma once
/// One pre-norm layer of the decoder:
///   n = rmsnorm(x);  q,k,v = rope(n·Wq), rope(n·Wk), n·Wv;  (o,lse) = attention(q,k,v);  y = x + o·Wo;
///   z = y + s·W2,  s = silu(m·W1) ∘ (m·W3),  m = rmsnorm(y)

#include "cli/step/checkpoint.hpp"
#include "cli/step/model.hpp"
#include "cli/step/rank_attention.hpp"
#include "kernels/dense/rope.hpp"

namespace distattn::step {

/// What every layer of a rank shares.
template <class T>
struct LayerContext {
  const ModelShape& shape;
  const kernels::dense::RotaryTable<T>& rope;
  RankAttention<T>& attention;
  ActivationMemory& memory;
};

template <class T>
class Layer {
 public:
  /// Both are kept by reference or view and must outlive the layer.
  Layer(const LayerContext<T>& context, const LayerWeights<const T>& weights) : context_(context), weights_(weights) {}

  /// Computes every activation that is missing from those that are there; x must be. This is the forward, and after
  /// a checkpoint the recomputation: an attention whose (o, lse) were kept is not run again.
  void complete(Activations<T>& a) const;

  /// z = y + s·W2: the next layer's x.
  Tensor<T> output(const Activations<T>& a) const;

  /// Turns dz into dx and adds the weights' gradients. Uses up the activations, which must be complete.
  void backward(const LayerWeights<T>& gradients, Activations<T>& a, Tensor<T>& dz_then_dx) const;

 private:
  void ffn_backward(const LayerWeights<T>& dw, Activations<T>& a, Tensor<T>& dz_then_dy) const;
  void attention_backward(const LayerWeights<T>& dw, Activations<T>& a, Tensor<T>& dy_then_dx) const;

  const LayerContext<T>& context_;
  LayerWeights<const T> weights_;
};

}  // namespace distattn::step
