#pragma once
/// How host kernels turn the product of a query and a key into a score, and the gradient of a score into that of the
/// product.
///
/// A map of scores has three functions. factor() is what products are multiplied by, wherever that costs least: kernels
/// pack one operand times the factor. score(x) is the score of a product x that includes the factor. gradient(d, s) is
/// the gradient of x, given the gradient d of its score s. Values are scalars or vectors. Both passes call the same map
/// with operands that are rounded alike, so their scores are the same to the last bit. Everything is inlined, because
/// code for different instruction sets must not share symbols.

#include "distattn/scores.hpp"

namespace distattn::kernels {

/// score = factor · product. Gradients need no scores, so kernels keep none.
template <class Real>
class LinearScores {
 public:
  static constexpr bool is_linear = true;

  [[gnu::always_inline]] constexpr explicit LinearScores(const Scores& scores)
      : factor_(static_cast<Real>(scores.scale)) {}

  [[gnu::always_inline]] constexpr Real factor() const { return factor_; }
  template <class Values>
  [[gnu::always_inline]] constexpr Values score(Values product) const {
    return product;
  }
  template <class Values>
  [[gnu::always_inline]] constexpr Values gradient(Values d_score, Values) const {
    return d_score;
  }

 private:
  Real factor_;
};

/// Calls body with the map for these scores, which has parameters of type Real.
template <class Real, class Body>
[[gnu::always_inline]] inline decltype(auto) with_scores(const Scores& scores, Body&& body) {
  return body(LinearScores<Real>(scores));
}

/// The factor of the map for these scores.
template <class Real>
[[gnu::always_inline]] inline Real factor_of(const Scores& scores) {
  return with_scores<Real>(scores, [](const auto& map) { return map.factor(); });
}

}  // namespace distattn::kernels
