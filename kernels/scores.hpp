#pragma once
/// How host kernels turn the product of a query and a key into a score, and the gradient of a score into that of the
/// product.
///
/// A map of scores has three functions. factor() is what products are multiplied by, wherever that costs least: kernels
/// pack one operand times the factor. score(x) is the score of a product x that includes the factor. gradient(d, s) is
/// the gradient of x, given the gradient d of its score s. Values are scalars or vectors. Both passes call the same map
/// with operands that are rounded alike, so their scores are the same to the last bit. Everything is inlined, because
/// code for different instruction sets must not share symbols.

#include <cmath>
#include <limits>

#include "distattn/scores.hpp"
#include "distattn/types.hpp"

namespace distattn::kernels {

/// score = factor · product. Gradients need no scores, so kernels keep none.
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
  [[gnu::always_inline]] DISTATTN_HOST_DEVICE constexpr Values gradient(Values d_score, Values) const {
    return d_score;
  }

 private:
  Real factor_;
};

/// cap · tanh(x / cap) of scalars, given 1 / cap. Kernels specialise it for their vectors: always inlined, and rounded
/// by itself, not together with what its caller does next.
template <class Values>
struct Capped {
  DISTATTN_HOST_DEVICE Values operator()(Values x, Values inverse, Values cap) const {
    return cap * std::tanh(x * inverse);
  }
  /// NaN stays NaN.
  DISTATTN_HOST_DEVICE static Values at_least_0(Values x) {
    using std::abs;
    return (x + abs(x)) / Values(2);
  }
};

/// 1 / cap, rounded so that cap times it is at least 1: the share of a score that is its cap leaves no derivative.
template <class Real>
DISTATTN_HOST_DEVICE Real inverse_of_cap(double softcap) {
  const Real inverse = static_cast<Real>(1 / softcap);
  const bool is_enough = static_cast<Real>(softcap) * inverse >= 1;
  return is_enough ? inverse : std::nextafter(inverse, std::numeric_limits<Real>::infinity());
}

/// score = cap · tanh(factor · product / cap), whose derivative 1 − (score / cap)² follows from the score: it
/// is that of the forward pass, whatever the error of tanh, and 0 where the score is the cap.
template <class Real>
class CappedScores {
 public:
  static constexpr bool is_linear = false;

  [[gnu::always_inline]] DISTATTN_HOST_DEVICE explicit CappedScores(const Scores& scores)
      : factor_(static_cast<Real>(scores.scale)),
        cap_(static_cast<Real>(scores.softcap)),
        inverse_(inverse_of_cap<Real>(scores.softcap)) {}

  [[gnu::always_inline]] DISTATTN_HOST_DEVICE constexpr Real factor() const { return factor_; }
  template <class Values>
  [[gnu::always_inline]] DISTATTN_HOST_DEVICE Values score(Values product) const {
    return Capped<Values>()(product, Values(inverse_), Values(cap_));
  }
  template <class Values>
  [[gnu::always_inline]] DISTATTN_HOST_DEVICE Values gradient(Values d_score, Values score) const {
    const Values share = score * inverse_;
    return d_score * Capped<Values>::at_least_0(Values(1) - share * share);
  }

 private:
  Real factor_, cap_, inverse_;
};

/// Calls body with the map for these scores, which has parameters of type Real.
template <class Real, class Body>
[[gnu::always_inline]] DISTATTN_HOST_DEVICE inline decltype(auto) with_scores(const Scores& scores, Body&& body) {
  if (scores.softcap != 0) return body(CappedScores<Real>(scores));
  return body(LinearScores<Real>(scores));
}

/// The factor of the map for these scores.
template <class Real>
[[gnu::always_inline]] DISTATTN_HOST_DEVICE inline Real factor_of(const Scores& scores) {
  return with_scores<Real>(scores, [](const auto& map) { return map.factor(); });
}

}  // namespace distattn::kernels
