#pragma once
/// Attention in loops that can be read against the formulas of docs/mathematics.md.

#include <span>

#include "kernels/kernels.hpp"

namespace distattn::kernels::reference {

/// Every element type; sums in fp64 for fp64 and in fp32 else.
void attend(std::span<const AttendArgs> operations, Team& team, const StopFlag& stop);
void attend_backward(std::span<const AttendBackwardArgs> operations, Team& team, const StopFlag& stop);

}  // namespace distattn::kernels::reference
