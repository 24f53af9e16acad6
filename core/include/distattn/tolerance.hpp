#pragma once
/// How far a result may be from float64 before it is wrong: one function for every test, check and gate.

#include <cstdint>

#include "distattn/problem.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// Largest relative L2 error of o, dq, dk and dv, and largest absolute error of lse, of an attention whose results
/// were merged `merges` times. What rounds: sums of up to `seq_kv` terms in blocks (a logarithm of their number), each
/// merge once, and where 16-bit elements or a 16-bit wire are used, what is rounded to them.
double tolerance(const Problem& problem, std::int64_t merges);

}  // namespace distattn
#pragma GCC visibility pop
