#pragma once
/// Kernels whose time is that of moving their operands: one implementation serves every table.

#include <span>

#include "kernels/kernels.hpp"

namespace distattn::kernels {

void merge(std::span<const MergeArgs> operations, Team& team, const StopFlag& stop);
void accumulate(std::span<const AccumulateArgs> operations, Team& team, const StopFlag& stop);
void convert(std::span<const ConvertArgs> operations, Team& team, const StopFlag& stop);
void delta(std::span<const DeltaArgs> operations, Team& team, const StopFlag& stop);
/// Zeros in the sums and squares that an operation starts.
void clear_sums(const AttendBackwardArgs& args);
/// For kernels that leave nothing out of dq: zeros.
void share_nothing(std::span<const ShareArgs> operations, Team& team, const StopFlag& stop);
void settle(std::span<const SettleArgs> operations, Team& team, const StopFlag& stop);
/// The same where weights were rounded to bf16, and with them outputs, of which delta is made.
void settle_rounded(std::span<const SettleArgs> operations, Team& team, const StopFlag& stop);
void rearrange(std::span<const RearrangeArgs> operations, Team& team, const StopFlag& stop);
void merge_sinks(std::span<const SinkArgs> operations, Team& team, const StopFlag& stop);
void differentiate_sinks(std::span<const SinkGradientArgs> operations, Team& team, const StopFlag& stop);

}  // namespace distattn::kernels
