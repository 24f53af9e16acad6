#pragma once
/// The algebra of partial results (docs/mathematics.md; FlashAttention's and DistFlashAttn's rescaling, normalised).
///
/// A partial is (o, lse): the normalised output and the natural-log log-sum-exp of some queries over some set of keys.
/// `(o1,s1) + (o2,s2) = (w1·o1 + w2·o2, s)`, w = e^(s_i − s), s = log(e^s1 + e^s2). Identity (0, −∞); commutative;
/// associative up to rounding; right only for disjoint key sets. The same pair is a kernel's carry, what travels
/// between ranks, and the result, with an LSE in two numbers where it is fp32 (SplitLse).
///
/// With an fp32 lse alone, o is within tolerance() and lse is the nearest float. Weights e^(score − lse) computed from
/// it are off by up to 6e-8·|lse|, equally for a whole row: 3e-5 at 570, 6 % at a million. So are the gradients of a
/// backward pass, and outputs that are merged with it. With the low part the errors do not grow with the scores.

#include <cmath>

#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// What merging two partials of one query does to their outputs: o = scale_a·o_a + scale_b·o_b.
template <class Real>
struct MergeWeights {
  Real scale_a, scale_b, lse;
};

/// Two empty sides give the identity, never NaN; a NaN statistic propagates. Scores of −∞ have no weight, so that a row
/// whose scores are all −∞ counts as empty.
template <class Real>
DISTATTN_HOST_DEVICE inline MergeWeights<Real> merge_weights(Real lse_a, Real lse_b) {
  const Real top = lse_a > lse_b || lse_a != lse_a ? lse_a : lse_b;
  if (top == -INFINITY) return {Real(0), Real(0), top};
  const Real a = std::exp(lse_a - top), b = std::exp(lse_b - top), sum = a + b;
  return {a / sum, b / sum, top + std::log(sum)};
}

/// A log-sum-exp as the sum of two numbers: the nearest Real and the remainder, which is 0 if `high` is not finite. The
/// relative error of an fp32 `high` alone is up to 6e-8, and that of every weight e^(score − lse) up to 6e-8·|lse|.
template <class Real>
struct SplitLse {
  Real high = -INFINITY, low = 0;
};

/// The sum of two numbers, whichever is larger.
template <class Real>
DISTATTN_HOST_DEVICE inline SplitLse<Real> split_lse(Real high, Real low) {
  const Real sum = high + low;
  if (!(sum - sum == 0)) return {sum, Real(0)};
  const Real added = sum - high;  // Knuth's two-sum
  return {sum, (high - (sum - added)) + (low - added)};
}

template <class Real>
struct SplitMergeWeights {
  Real scale_a, scale_b;
  SplitLse<Real> lse;
};

/// The same for statistics in two numbers. However many are merged, in any order, the error does not grow with their
/// size.
template <class Real>
DISTATTN_HOST_DEVICE inline SplitMergeWeights<Real> merge_weights(const SplitLse<Real>& a, const SplitLse<Real>& b) {
  const bool a_is_top = a.high > b.high || (a.high == b.high && a.low >= b.low) || a.high != a.high;
  const SplitLse<Real>&top = a_is_top ? a : b, &other = a_is_top ? b : a;
  if (top.high == -INFINITY) return {Real(0), Real(0), top};
  // A difference in the tens rounds by more than a weight may: what is lost counts to first order.
  const SplitLse<Real> difference = split_lse(other.high, -top.high);
  const SplitLse<Real> exponent = split_lse(difference.high, difference.low + (other.low - top.low));
  const Real rounded = std::exp(exponent.high);
  const Real weight = rounded + rounded * exponent.low, sum = Real(1) + weight;
  const Real scale_top = Real(1) / sum, scale_other = weight / sum;
  return {a_is_top ? scale_top : scale_other, a_is_top ? scale_other : scale_top,
          split_lse(top.high, top.low + std::log1p(weight))};
}

}  // namespace distattn
#pragma GCC visibility pop
