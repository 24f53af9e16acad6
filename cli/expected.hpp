#pragma once
/// What the results of some inputs should be, in float64.

#include "distattn/choose.hpp"
#include "distattn/oracle.hpp"
#include "inputs.hpp"

namespace distattn::cli {

/// Of one sequence and key head, and the query heads that share it: `one` is the problem of these alone. Computes with
/// `threads` threads.
ExpectedResult expected_of(const Problem& one, const Rounding& rounding, const Inputs& inputs, std::int64_t b,
                           std::int64_t kv_head, Passes passes, int threads);

}  // namespace distattn::cli
