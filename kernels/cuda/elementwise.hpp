#pragma once
/// The kernels whose time is that of moving their operands: starts one on a stream and returns the CUDA runtime's
/// status. Arguments as kernels/arguments.hpp and kernels/kernels.hpp describe them, in device memory; fp64 only
/// where tensors are rearranged, and rounded to fp32 on the way. An operation of nothing loads its kernel.

#include "kernels/arguments.hpp"
#include "kernels/cuda/attend_params.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/kernels.hpp"

namespace distattn::kernels::cuda {

/// o[row][x] = d_o[row][x] · delta[row] / Σ_x d_o[row][x]²: of the outputs whose sum with d_o is delta, the shortest,
/// so that it overflows no sooner than the true one's norm. For kernels that take o where others take delta.
struct OutputOfDeltaArgs {
  DType dtype = DType::fp32;  ///< of d_o and o
  std::int64_t rows = 0;
  int dim = 0;
  const void* d_o = nullptr;
  const float* delta = nullptr;
  void* o = nullptr;
};

int merge(const MergeArgs& args, Stream stream);
int accumulate(const AccumulateArgs& args, Stream stream);
int convert(const ConvertArgs& args, Stream stream);
int delta(const DeltaArgs& args, Stream stream);
int output_of_delta(const OutputOfDeltaArgs& args, Stream stream);
int rearrange(const RearrangeArgs& args, Stream stream);
int merge_sinks(const SinkArgs& args, Stream stream);
/// The bits of a gradient are the same in every run.
int differentiate_sinks(const SinkGradientArgs& args, Stream stream);
/// *into = draw.
int write_draw(DropoutDraw* into, const DropoutDraw& draw, Stream stream);
/// into[0 … count-1] = value.
int fill(float* into, std::int64_t count, float value, Stream stream);

}  // namespace distattn::kernels::cuda
