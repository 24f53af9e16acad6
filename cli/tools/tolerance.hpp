#pragma once
/// How far a result may be from float64 before it is wrong: one source for every test, check and gate.
/// docs/mathematics.md derives it under "How far rounding may go".

#include <cstdint>

#include "distattn/problem.hpp"

namespace distattn {

/// Rounding errors of a computation, as shares of the rounded quantities. Sources: sums of up to `seq_kv` terms in
/// blocks (they grow with the logarithm of the number of terms), each merge, and 16-bit elements or a 16-bit wire.
struct Rounding {
  double exponential = 0;  ///< an exponential and a sum of them, for any score
  double weight = 0;       ///< each softmax weight: that, and where it is rounded to 16 bits
  double score =
      0;  ///< a score, as a share of |score| + |scale|·|q|·|k| / 4; in a weight's exponent, as a share of |LSE|
  double sum = 0;    ///< a sum, as a share of the magnitudes that it adds
  double dot = 0;    ///< a product dO·v
  double chain = 0;  ///< a sum of equal terms, for each of them: it rounds in one direction, as those of other rows do
  double delta = 0;  ///< dO·o, parts of which may have been sent in 16 bits
  double underflow = 0;  ///< weights below this may be dropped
  double least = 0;      ///< the smallest number of the accumulator
  double element = 0;    ///< the smallest number of the tensors' type: dS may be rounded to it
  double sent = 0;       ///< absolute loss of a result's element in all of its messages
};

/// Rounding of an attention whose results were merged `merges` times. `sent`: parts of results travel in the wire's
/// type.
Rounding rounding_of(const Problem& problem, std::int64_t merges, bool sent);

/// Largest relative L2 error of o, dq, dk and dv over whole tensors, and largest error of lse as a share of max(1,
/// |lse|), for random inputs. `input_scale` is the product of the standard deviations of q and k; above 1 the tolerance
/// grows with it, as the rounding of scores does. Never above 0.5, so that a result of zeros always fails; if rounding
/// alone exceeds that, no result can be judged. For other inputs, row by row, see judge.hpp.
double tolerance(const Problem& problem, std::int64_t merges, double input_scale = 1);

}  // namespace distattn
