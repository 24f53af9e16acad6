#pragma once
/// Attention tuned for the vector instructions of this processor: fp32 compute, fp32 and 16-bit inputs.

#include <span>

#include "kernels/kernels.hpp"
#include "kernels/vector/launch.hpp"

namespace distattn::kernels {

/// Tuned for the vector instructions of this processor, on the threads of a team.
const HostKernels& cpu_kernels();

namespace vector {

/// `by` hands out their items.
void attend(std::span<const AttendArgs> operations, Team& team, const StopFlag& stop, Launch by);
void attend_backward(std::span<const AttendBackwardArgs> operations, Team& team, const StopFlag& stop, Launch by);
void share(std::span<const ShareArgs> operations, Team& team, const StopFlag& stop);

}  // namespace vector
}  // namespace distattn::kernels
