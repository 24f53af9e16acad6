#pragma once
/// The exact answer that results are compared with: a whole attention in float64, unsharded, in plain loops.

#include <span>
#include <vector>

#include "cli/tools/tolerance.hpp"
#include "distattn/problem.hpp"
#include "distattn/tensor.hpp"

namespace distattn {

/// Dense tensors [batch, sequence, heads, dim], as the inputs; lse is [batch, heads, sequence].
struct ExactResult {
  std::vector<double> o, lse;
  std::vector<double> dq, dk, dv;    ///< empty unless d_o was given
  std::vector<double> max_logit;     ///< [batch, heads]: the largest visible score; −∞: there is none
  std::vector<double> dsink_logits;  ///< [batch, heads], of each sequence; empty unless d_o and sink logits were given
};

/// What a problem with dropout drops: the seed and offset of the call, and which part of a whole attention it is.
struct DrawnFrom {
  std::uint64_t seed = 0;
  std::uint32_t offset = 0;
  int heads = 0;  ///< query heads of the whole attention; 0: as many as the problem has
  std::int64_t first_batch = 0, first_head = 0;
};

/// Computes with `threads` threads and allocates inputs and results once in float64. The inputs may have any element
/// type; the problem's element types are ignored. `d_o` without data: forward only. Denormal numbers are not flushed. A
/// problem with sink logits needs those of its heads. If values lie in keys, v is the beginning of k, and dk is dK +
/// [dV, 0].
ExactResult exact_attention(const Problem& problem, const ConstTensorView& q, const ConstTensorView& k,
                            const ConstTensorView& v, const ConstTensorView& d_o, int threads,
                            std::span<const double> sink_logits = {}, const DrawnFrom& drawn = {});

/// L2 norms for each row of a result, [batch, sequence, heads].
struct RowNorms {
  std::vector<double> allowed;  ///< largest norm of a row's error (lse: largest absolute error)
  std::vector<double> terms;    ///< root of the summed squared norms of the terms that add up to the row and may cancel
};

/// The exact results, and how far off rounding may leave each of their rows.
struct ExpectedResult {
  ExactResult exact;
  RowNorms o, lse, dq, dk, dv, dsink_logits, max_logit;
};
ExpectedResult expected_attention(const Problem& problem, const Rounding& rounding, const ConstTensorView& q,
                                  const ConstTensorView& k, const ConstTensorView& v, const ConstTensorView& d_o,
                                  int threads, std::span<const double> sink_logits = {}, const DrawnFrom& drawn = {});

}  // namespace distattn
