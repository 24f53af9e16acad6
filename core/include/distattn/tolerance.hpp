#pragma once
/// How far a result may be from float64 before it is wrong: one source for every test, check and gate.
/// docs/mathematics.md derives it under "How far rounding may go".

#include <cstdint>

#include "distattn/problem.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// How what computes a problem rounds, as shares of what is rounded. What rounds: sums of up to `seq_kv` terms in
/// blocks (a logarithm of their number), each merge once, and where 16-bit elements or a 16-bit wire are used, what is
/// rounded to them.
struct Rounding {
  double weight = 0;     ///< of each softmax weight, whatever its score
  double score = 0;      ///< of a score: of |score| + |scale|·|q|·|k| / 4; of what a weight is made with: of |LSE|
  double sum = 0;        ///< of the magnitudes that a sum adds, however little is left of them
  double dot = 0;        ///< of a product dO·v
  double delta = 0;      ///< of dO·o, parts of which may have been sent
  double underflow = 0;  ///< weights below this may count for nothing
  double least = 0;      ///< the smallest number of the accumulator
  double element = 0;    ///< the smallest number of the tensors' type: dS may be rounded to it
  double sent = 0;       ///< what an element of a result may lose in all of its messages, however small it is
};

/// Of an attention whose results were merged `merges` times.
Rounding rounding_of(const Problem& problem, std::int64_t merges);

/// Largest relative L2 error of o, dq, dk and dv over whole tensors, and largest error of lse as a share of
/// max(1, |lse|), where inputs are random: q and k of a deviation whose product is `input_scale`. Scores round by as
/// much as they are large: those of a deviation above 1 allow for it in proportion. Never above 0.5, which a result of
/// zeros misses by half: scores so large that their rounding alone takes more have no result to judge. Any inputs, row
/// by row, are judge.hpp's matter.
double tolerance(const Problem& problem, std::int64_t merges, double input_scale = 1);

}  // namespace distattn
#pragma GCC visibility pop
