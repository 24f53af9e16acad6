#include "cli/step/unsharded.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace distattn::step {
ExactResult ExactAttention::compute(const AttentionInputs<double>& in, const double* d_o) const {
  const auto view = [&](const double* data, int heads) {
    return dense_view(reinterpret_cast<const std::byte*>(data), DType::fp64, 1, problem_.seq_q, heads,
                      problem_.head_dim);
  };
  const ConstTensorView gradient = d_o == nullptr ? ConstTensorView{} : view(d_o, problem_.heads);
  return exact_attention(problem_, view(in.q, problem_.heads), view(in.k, problem_.kv_heads),
                         view(in.v, problem_.kv_heads), gradient, threads_);
}

void ExactAttention::forward(const AttentionInputs<double>& in, double* o, double* lse) {
  const auto exact = compute(in, nullptr);
  std::copy(exact.o.begin(), exact.o.end(), o);
  std::copy(exact.lse.begin(), exact.lse.end(), lse);
}

void ExactAttention::backward(const AttentionInputs<double>& in, const double*, const double*, const double* d_o,
                              double* dq, double* dk, double* dv) {
  const auto exact = compute(in, d_o);
  std::copy(exact.dq.begin(), exact.dq.end(), dq);
  std::copy(exact.dk.begin(), exact.dk.end(), dk);
  std::copy(exact.dv.begin(), exact.dv.end(), dv);
}

StepGradients unsharded_step(const ModelShape& shape, const Mask& mask, std::span<const float> parameters,
                             const TokenBatch& batch, int threads) {
  const auto named = parameters_of(shape);
  const std::vector<double> wide(parameters.begin(), parameters.end());
  StepGradients result;
  result.values.assign(wide.size(), 0.0);

  const auto tokens = static_cast<std::int64_t>(batch.tokens.size());
  std::vector<std::int64_t> positions(batch.tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  const Problem problem = attention_problem(shape, tokens, mask);
  ExactAttention attention(problem, threads);
  Decoder<double> decoder(shape, positions, attention, checkpoint_policy("none"));
  const auto weights = weights_view(shape, named, wide.data());
  const double weight = 1.0 / static_cast<double>(tokens - 1);
  result.loss = weight * decoder.forward(weights, batch, weight);
  decoder.backward(weights, batch, weights_view(shape, named, result.values.data()));
  return result;
}

GradientError compare_gradients(std::span<const Parameter> parameters, std::span<const float> gradients,
                                std::span<const double> exact) {
  GradientError error;
  for (const Parameter& parameter : parameters) {
    double difference = 0, norm = 0;
    for (std::size_t i = parameter.offset; i < parameter.offset + parameter.size(); ++i) {
      const double apart = static_cast<double>(gradients[i]) - exact[i];
      difference += apart * apart;
      norm += exact[i] * exact[i];
    }
    const double relative = norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
    const double comparable = std::isnan(relative) ? std::numeric_limits<double>::infinity() : relative;
    if (comparable > error.largest) error = {comparable, parameter.name};
  }
  return error;
}

}  // namespace distattn::step
