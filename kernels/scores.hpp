#pragma once
/// How host kernels turn the product of a query and a key into a score, and the gradient of a score into that of the
/// product.
///
/// A map of scores has five functions. factor() is what products are multiplied by, wherever that costs least: kernels
/// pack one operand times the factor. score(x) is the score of a product x that includes the factor, derivative(x) that
/// of the score by x, curve(x) both. gradient(d, derivative) is the gradient of x, given the gradient d of its score.
/// Values are scalars or vectors. Both passes call the same map with operands that are rounded alike, so their scores
/// are the same to the last bit. Everything is inlined, because code for different instruction sets must not share
/// symbols.

#include <cmath>

#include "distattn/scores.hpp"
#include "distattn/types.hpp"

namespace distattn::kernels {

template <class Values>
struct Curve {
  Values score, derivative;
};

/// score = factor · product. Gradients need no derivatives, so kernels keep none.
template <class Real>
class LinearScores {
 public:
  static constexpr bool is_linear = true;

  [[gnu::always_inline]] DISTATTN_HOST_DEVICE constexpr explicit LinearScores(const Scores& scores)
      : factor_(static_cast<Real>(scores.scale)) {}

  [[gnu::always_inline]] DISTATTN_HOST_DEVICE constexpr Real factor() const { return factor_; }
  template <class Values>
  [[gnu::always_inline]] DISTATTN_HOST_DEVICE constexpr Values score(Values product) const {
    return product;
  }
  template <class Values>
  [[gnu::always_inline]] DISTATTN_HOST_DEVICE constexpr Values derivative(Values) const {
    return Values(1);
  }
  template <class Values>
  [[gnu::always_inline]] DISTATTN_HOST_DEVICE constexpr Curve<Values> curve(Values product) const {
    return {product, Values(1)};
  }
  template <class Values>
  [[gnu::always_inline]] DISTATTN_HOST_DEVICE constexpr Values gradient(Values d_score, Values) const {
    return d_score;
  }

 private:
  Real factor_;
};

/// cap · tanh(inverse · product) of scalars, where `inverse` is 1 / cap. Its derivative is 4 / (e^x + e^−x)² of
/// e^−2|x|: that 1 − tanh² is small where |x| is large costs it no digits. Kernels specialise this for their vectors:
/// always inlined, and rounded by itself, not together with what their caller does next. NaN stays NaN.
template <class Values>
struct Cap {
  Values cap, inverse;

  DISTATTN_HOST_DEVICE Values score(Values product) const { return std::tanh(product * inverse) * cap; }
  DISTATTN_HOST_DEVICE Values derivative(Values product) const {
    const Values power = std::exp(Values(-2) * std::abs(product * inverse)), above = Values(1) + power;
    return Values(4) * power / (above * above);
  }
  DISTATTN_HOST_DEVICE Curve<Values> curve(Values product) const { return {score(product), derivative(product)}; }
};

/// score = cap · tanh(factor · product / cap).
template <class Real>
class CappedScores {
 public:
  static constexpr bool is_linear = false;

  [[gnu::always_inline]] DISTATTN_HOST_DEVICE explicit CappedScores(const Scores& scores)
      : factor_(static_cast<Real>(scores.scale)),
        cap_(static_cast<Real>(scores.softcap)),
        inverse_(static_cast<Real>(1 / scores.softcap)) {}

  [[gnu::always_inline]] DISTATTN_HOST_DEVICE constexpr Real factor() const { return factor_; }
  template <class Values>
  [[gnu::always_inline]] DISTATTN_HOST_DEVICE Values score(Values product) const {
    return of<Values>().score(product);
  }
  template <class Values>
  [[gnu::always_inline]] DISTATTN_HOST_DEVICE Values derivative(Values product) const {
    return of<Values>().derivative(product);
  }
  template <class Values>
  [[gnu::always_inline]] DISTATTN_HOST_DEVICE Curve<Values> curve(Values product) const {
    return of<Values>().curve(product);
  }
  template <class Values>
  [[gnu::always_inline]] DISTATTN_HOST_DEVICE Values gradient(Values d_score, Values derivative) const {
    return d_score * derivative;
  }

 private:
  template <class Values>
  [[gnu::always_inline]] DISTATTN_HOST_DEVICE Cap<Values> of() const {
    return {Values(cap_), Values(inverse_)};
  }

  Real factor_, cap_, inverse_;
};

[[gnu::always_inline]] DISTATTN_HOST_DEVICE constexpr bool is_linear(const Scores& scores) {
  return scores.softcap == 0;
}
/// What is left of a map of scores with the same factor once its curve has been applied.
[[gnu::always_inline]] DISTATTN_HOST_DEVICE constexpr Scores linear_part(Scores scores) {
  scores.softcap = 0;
  return scores;
}

/// Calls body with the map for these scores, which has parameters of type Real.
template <class Real, class Body>
[[gnu::always_inline]] DISTATTN_HOST_DEVICE inline decltype(auto) with_scores(const Scores& scores, Body&& body) {
  if (!is_linear(scores)) return body(CappedScores<Real>(scores));
  return body(LinearScores<Real>(scores));
}

/// The factor of the map for these scores.
template <class Real>
[[gnu::always_inline]] DISTATTN_HOST_DEVICE inline Real factor_of(const Scores& scores) {
  return with_scores<Real>(scores, [](const auto& map) { return map.factor(); });
}

}  // namespace distattn::kernels
