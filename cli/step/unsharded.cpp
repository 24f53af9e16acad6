#include "cli/step/unsharded.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace distattn::step {
namespace {

/// Of a gradient beside all of them: less is zero but for float64's own rounding (queries that see equal keys alone
/// have no gradient).
constexpr double float64_rounding = 1e-12;

double norm(std::span<const double> values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

double distance(std::span<const float> values, std::span<const double> exact) {
  double squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double apart = static_cast<double>(values[i]) - exact[i];
    squares += apart * apart;
  }
  return std::sqrt(squares);
}

}  // namespace

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

StepGradients unsharded_step(const ModelShape& shape, const Problem& problem, std::span<const float> parameters,
                             const TokenBatch& batch, int threads) {
  const auto named = parameters_of(shape);
  const std::vector<double> wide(parameters.begin(), parameters.end());
  StepGradients result;
  result.values.assign(wide.size(), 0.0);

  const auto tokens = static_cast<std::int64_t>(batch.tokens.size());
  std::vector<std::int64_t> positions(batch.tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
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
  const double of_all = norm(exact);
  GradientError error;
  for (const Parameter& parameter : parameters) {
    const auto expected = exact.subspan(parameter.offset, parameter.size());
    const double apart = distance(gradients.subspan(parameter.offset, parameter.size()), expected);
    const double own = norm(expected), beside = own > float64_rounding * of_all ? own : of_all;
    const double relative = beside > 0 ? apart / beside : apart;
    const double comparable = std::isnan(relative) ? std::numeric_limits<double>::infinity() : relative;
    if (comparable > error.largest) error = {comparable, parameter.name};
  }
  return error;
}

}  // namespace distattn::step
