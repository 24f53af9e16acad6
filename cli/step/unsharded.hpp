#pragma once
/// The same training step on one rank in float64: what every sharded gradient is compared with.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/step/decoder.hpp"
#include "cli/step/model.hpp"
#include "cli/step/rank_attention.hpp"
#include "cli/tools/oracle.hpp"

namespace distattn::step {

/// The oracle's attention over the whole sequence. The backward does not trust the kept (o, lse): it makes its own.
class ExactAttention final : public RankAttention<double> {
 public:
  /// `problem` must outlive this.
  ExactAttention(const Problem& problem, int threads) : problem_(problem), threads_(threads) {}

  void forward(const AttentionInputs<double>& in, double* o, double* lse) override;
  void backward(const AttentionInputs<double>& in, const double* o, const double* lse, const double* d_o, double* dq,
                double* dk, double* dv) override;

 private:
  ExactResult compute(const AttentionInputs<double>& in, const double* d_o) const;

  const Problem& problem_;
  int threads_;
};

/// Mean loss and every parameter's gradient.
struct StepGradients {
  double loss = 0;
  std::vector<double> values;  ///< as the flat run of parameters
};

/// `batch` holds the whole sequence in order; parameters are widened, so both steps start from the same numbers.
/// `problem` is what each layer's attention poses.
StepGradients unsharded_step(const ModelShape& shape, const Problem& problem, std::span<const float> parameters,
                             const TokenBatch& batch, int threads);

/// How far a gradient is from the exact one, by parameter. An exact one that is zero, but for what float64 rounds, has
/// no size of its own: its error is measured beside all gradients together.
struct GradientError {
  double largest = 0;     ///< over parameters: ‖g − exact‖ / ‖exact‖, infinite where that is NaN
  std::string parameter;  ///< where
};
GradientError compare_gradients(std::span<const Parameter> parameters, std::span<const float> gradients,
                                std::span<const double> exact);

}  // namespace distattn::step
