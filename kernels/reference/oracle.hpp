#pragma once
/// A whole attention in float64, unsharded: what every other result is compared with, and how far rounding may carry
/// each row of another from it.

#include <cmath>
#include <span>
#include <vector>

#include "distattn/tensor.hpp"
#include "kernels/arguments.hpp"
#include "kernels/team.hpp"

namespace distattn::kernels::reference {

/// Holds squares of all doubles where its exponent is longer than theirs, as x86's is.
using Square = long double;
constexpr Square square(double x) { return static_cast<Square>(x) * x; }
inline double root(Square squares) { return static_cast<double>(std::sqrt(squares)); }

/// q, k, v (and d_o for gradients) in any element types, heads a multiple of k's. Queries and keys stand at the given
/// positions and see each other through `bands`.
struct WholeAttention {
  ConstTensorView q, k, v, d_o;
  Run queries, keys;
  std::span<const Band> bands;
  Scores scores{1};
  /// Null: no weight is dropped. Sequences and heads are counted from these on.
  const Dropout* dropout = nullptr;
  std::int64_t first_batch = 0, first_head = 0;
  std::span<const double> alibi_slopes;  ///< by query head; empty: no bias
  std::span<const double> sink_logits;   ///< by query head, if scores have them
};

/// How what computes the attention in other types rounds, as shares (distattn/tolerance.hpp has them by problem).
struct Rounding {
  double exponential = 0;  ///< of an exponential and of a sum of them, whatever the score
  double weight = 0;       ///< of each softmax weight: that, and where it is rounded to 16 bits
  double score = 0;        ///< of a score: of |score| + |scale|·|q|·|k| / 4; of what a weight is made with: of |LSE|
  double sum = 0;          ///< of the magnitudes that a sum adds, however little is left of them
  double dot = 0;          ///< of a product dO·v
  double chain = 0;        ///< of a sum of equal terms, for each of them
  double delta = 0;        ///< of dO·o, parts of which may have been sent
  double underflow = 0;    ///< weights below this may count for nothing
  double least = 0;        ///< the smallest number, which what is smaller rounds to or from
  double element = 0;      ///< the smallest number of the tensors' type: dS may be rounded to it
  double sent = 0;         ///< what an element of a result may lose in all of its messages, however small it is
};

/// By row of a result, in the order of its rows.
struct RowNorms {
  std::vector<double> allowed;  ///< the largest L2 norm of a row's error
  std::vector<double> terms;    ///< root of the squared norms of what sums up to the row, which may cancel in it
};

/// Dense [batch, sequence, heads, dim] as the inputs; lse [batch, heads, sequence], its norms [batch, sequence, heads].
/// Gradients are empty without d_o.
struct Exact {
  std::vector<double> o, lse, dq, dk, dv;
  std::vector<double> max_logit;     ///< [batch, heads], of visible scores; −∞: there are none
  std::vector<double> dsink_logits;  ///< [batch, heads], of each sequence; empty without d_o or sink logits
  RowNorms o_norms, lse_norms, dq_norms, dk_norms, dv_norms, dsink_norms, max_norms;
};

/// Computes with all threads of `team`, in time that grows with the visible pairs. Memory: inputs and results once more
/// in float64, and for each thread the gradients of one key head.
Exact compute_exactly(const WholeAttention& attention, Team& team, const Rounding& rounding = {});

}  // namespace distattn::kernels::reference
