#pragma once
/// The exact answer: a whole attention in float64, unsharded, in obvious loops. What every result is compared with.

#include <vector>

#include "distattn/problem.hpp"
#include "distattn/tensor.hpp"
#include "distattn/tolerance.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// Dense [batch, sequence, heads, dim] as the inputs; lse [batch, heads, sequence].
struct ExactResult {
  std::vector<double> o, lse;
  std::vector<double> dq, dk, dv;  ///< empty unless d_o was given
};

/// Computes with `threads` threads, in memory of inputs and results once more in float64. The inputs may have any
/// element type; the problem's element types are not looked at. `d_o` without data: forward only. Denormal numbers
/// count as any others.
ExactResult exact_attention(const Problem& problem, const ConstTensorView& q, const ConstTensorView& k,
                            const ConstTensorView& v, const ConstTensorView& d_o, int threads);

/// L2 norms by row of a result, [batch, sequence, heads].
struct RowNorms {
  std::vector<double> allowed;  ///< the largest of an error of the row (lse: of its absolute value)
  std::vector<double> terms;    ///< root of the squared norms of what sums up to the row, which may cancel in it
};

/// What results should be, and how far off rounding may leave each of their rows.
struct ExpectedResult {
  ExactResult exact;
  RowNorms o, lse, dq, dk, dv;
};
ExpectedResult expected_attention(const Problem& problem, const Rounding& rounding, const ConstTensorView& q,
                                  const ConstTensorView& k, const ConstTensorView& v, const ConstTensorView& d_o,
                                  int threads);

}  // namespace distattn
#pragma GCC visibility pop
