#include "cli/step/decoder.hpp"

#include "distattn/index.hpp"
#include "kernels/dense/cross_entropy.hpp"
#include "kernels/dense/embedding.hpp"
#include "kernels/dense/matmul.hpp"
#include "kernels/dense/rmsnorm.hpp"

namespace distattn::step {

using namespace kernels::dense;

template <class T>
Decoder<T>::Decoder(const ModelShape& shape, std::span<const std::int64_t> positions, RankAttention<T>& attention,
                    const CheckpointPolicy& policy)
    : shape_(shape),
      tokens_(static_cast<std::int64_t>(positions.size())),
      rope_(positions, shape.head_dim()),
      policy_(policy),
      context_{shape_, rope_, attention, memory_},
      held_(index(shape.layers)) {}

template <class T>
double Decoder<T>::forward(const Weights<const T>& weights, const TokenBatch& batch, double weight) {
  MemoryMeter& working = memory_.working;
  Tensor<T> x(working, tokens_, shape_.hidden);
  gather_rows<T>(weights.embedding, batch.tokens, x);
  for (std::size_t i = 0; i < held_.size(); ++i) {
    const Layer<T> layer(context_, weights.layers[i]);
    Activations<T>& activations = held_[i];
    activations[Part::x] = std::move(x);
    layer.complete(activations);
    x = layer.output(activations);
    hold(policy_, activations, memory_);
  }

  Tensor<T> n(working, tokens_, shape_.hidden);
  rmsnorm<T>(x, weights.final_gain.data, n);
  Tensor<T> logits(working, tokens_, shape_.vocab);
  multiply<T>(n, weights.head, logits);
  const double loss = cross_entropy<T>(logits, batch.targets, weight);
  last_x_ = std::move(x);
  dlogits_ = std::move(logits);
  last_x_.charge(memory_.kept);
  dlogits_.charge(memory_.kept);
  return loss;
}

template <class T>
void Decoder<T>::backward(const Weights<const T>& weights, const TokenBatch& batch, const Weights<T>& gradients) {
  MemoryMeter& working = memory_.working;
  Tensor<T> n(working, tokens_, shape_.hidden);
  rmsnorm<T>(last_x_, weights.final_gain.data, n);
  add_weight_gradient<T>(n, dlogits_, gradients.head);
  multiply_transposed<T>(dlogits_, weights.head, n);
  dlogits_.reset();
  Tensor<T> dx(working, tokens_, shape_.hidden);
  std::fill_n(dx.data(), tokens_ * shape_.hidden, T(0));
  rmsnorm_backward<T>(last_x_, weights.final_gain.data, n, dx, gradients.final_gain.data);
  last_x_.reset();
  n.reset();

  for (std::size_t i = held_.size(); i-- > 0;) {
    const Layer<T> layer(context_, weights.layers[i]);
    Activations<T>& activations = held_[i];
    fetch(policy_, activations, memory_);
    layer.complete(activations);
    layer.backward(gradients.layers[i], activations, dx);
  }
  scatter_add_rows<T>(dx, batch.tokens, gradients.embedding);
}

template class Decoder<float>;
template class Decoder<double>;

}  // namespace distattn::step
