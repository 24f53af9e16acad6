#pragma once
/// Attention tuned for the vector instructions of this processor: fp32 compute, fp32 and 16-bit inputs.

#include <span>

#include "kernels/kernels.hpp"

namespace distattn::kernels {

/// Tuned for the vector instructions of this processor.
const HostKernels& kokkos_kernels();

namespace kokkos {

void attend(std::span<const AttendArgs> operations, Team& team, const StopFlag& stop);
void attend_backward(std::span<const AttendBackwardArgs> operations, Team& team, const StopFlag& stop);
void share(std::span<const ShareArgs> operations, Team& team, const StopFlag& stop);

}  // namespace kokkos
}  // namespace distattn::kernels
