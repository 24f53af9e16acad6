#pragma once
/// How far a result may be from float64 before it is wrong: one function for every test, check and gate.

#include <cstdint>

#include "distattn/problem.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// Largest relative L2 error of o, dq, dk and dv, and largest error of lse as a share of max(1, |lse|), of an attention
/// whose results were merged `merges` times. What rounds: sums of up to `seq_kv` terms in blocks (a logarithm of their
/// number), each merge once, and where 16-bit elements or a 16-bit wire are used, what is rounded to them. Scores round
/// by as much as they are large, and exp() turns that into an error of each weight: scores of a deviation above 1 allow
/// for it in proportion. That deviation is scale · √head_dim · `input_scale`, which is rms(q) · rms(k). Never above
/// 0.5, which a result of zeros misses by half: scores so large that their rounding alone takes more have no result to
/// judge. Where terms cancel, as in dS = P ∘ (dP − delta), what rounds is as large as they are: such an error is to be
/// judged beside them.
double tolerance(const Problem& problem, std::int64_t merges, double input_scale = 1);

}  // namespace distattn
#pragma GCC visibility pop
