#pragma once
/// Whether a program can be looked at at all: indices in range, sizes and lanes as they must be.

#include <vector>

#include "distattn/verify.hpp"

namespace distattn {

/// Appends what is malformed; true if nothing is, so that everything may be indexed.
bool check_shape(const Outline& outline, Rank rank, const RankProgram& program, std::vector<Finding>& findings);

}  // namespace distattn
