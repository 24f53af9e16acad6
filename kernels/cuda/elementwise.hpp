#pragma once
/// The kernels whose time is that of moving their operands: starts one on a stream and returns the CUDA runtime's
/// status. Arguments as kernels/arguments.hpp and kernels/kernels.hpp describe them, in device memory; fp64 only
/// where tensors are rearranged, and rounded to fp32 on the way. An operation of nothing loads its kernel.

#include "kernels/arguments.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/kernels.hpp"

namespace distattn::kernels::cuda {

int merge(const MergeArgs& args, Stream stream);
int accumulate(const AccumulateArgs& args, Stream stream);
int convert(const ConvertArgs& args, Stream stream);
int delta(const DeltaArgs& args, Stream stream);
int rearrange(const RearrangeArgs& args, Stream stream);
/// into[0 … count-1] = value.
int fill(float* into, std::int64_t count, float value, Stream stream);

}  // namespace distattn::kernels::cuda
