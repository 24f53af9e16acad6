#pragma once
/// The algebra of partial results (docs/mathematics.md; FlashAttention's and DistFlashAttn's rescaling, normalised).
///
/// A partial is (o, lse): the normalised output and the natural-log log-sum-exp of some queries over some set of keys.
/// `(o1,s1) + (o2,s2) = (w1·o1 + w2·o2, s)`, w = e^(s_i − s), s = log(e^s1 + e^s2). Identity (0, −∞); commutative;
/// associative up to rounding; right only for disjoint key sets. The same pair is a kernel's carry, what travels
/// between ranks, and the result.

#include <cmath>

#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// What merging two partials of one query does to their outputs: o = scale_a·o_a + scale_b·o_b.
template <class Real>
struct MergeWeights {
  Real scale_a, scale_b, lse;
};

/// Two empty sides give the identity, never NaN; a NaN statistic propagates. Scores of −∞ count for nothing, so that a
/// row which has no others is empty too.
template <class Real>
DISTATTN_HOST_DEVICE inline MergeWeights<Real> merge_weights(Real lse_a, Real lse_b) {
  const Real top = lse_a > lse_b || lse_a != lse_a ? lse_a : lse_b;
  if (top == -INFINITY) return {Real(0), Real(0), top};
  const Real a = std::exp(lse_a - top), b = std::exp(lse_b - top), sum = a + b;
  return {a / sum, b / sum, top + std::log(sum)};
}

}  // namespace distattn
#pragma GCC visibility pop
