#pragma once
/// Whether a machine's description says enough to predict anything on it.

#include "distattn/machine.hpp"

namespace distattn {

/// Throws Error(usage) when the machine has too few ranks or states no rates for the element type. A schedule takes
/// longer to lower than this takes to ask, so it is asked first.
void check_described(const Machine& machine, int ranks, DType dtype);

}  // namespace distattn
