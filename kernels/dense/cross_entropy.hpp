#pragma once
/// Softmax cross-entropy over a vocabulary, and its gradient in place.

#include <cstdint>
#include <span>

#include "kernels/dense/matrix.hpp"

namespace distattn::kernels::dense {

/// The target of a token that has no successor: it adds neither loss nor gradient.
inline constexpr std::int32_t no_target = -1;

/// Returns Σ_i −log softmax(logits[i])[targets[i]], and leaves weight · (softmax − onehot), the gradient of
/// weight · loss, in logits.
template <class T>
double cross_entropy(Matrix<T> logits, std::span<const std::int32_t> targets, double weight);

}  // namespace distattn::kernels::dense
