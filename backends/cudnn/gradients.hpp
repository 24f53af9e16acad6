#pragma once
/// One backward operation as calls of cuDNN.

#include <vector>

#include "backends/cuda/attend_provider.hpp"
#include "backends/cudnn/gpu.hpp"

namespace distattn::backends::cudnn {

/// A piece of one key segment's tile.
struct GradientCall {
  std::shared_ptr<const AttendPlan> plan;
  GradientOperands operands;  ///< the inputs but o
  std::size_t side = 0;       ///< of args.keys
  std::int64_t first_row = 0, first_column = 0;
  bool all_rows = false, all_columns = false;  ///< of the tile
};

/// cuDNN writes gradients in the inputs' type: each piece's go to scratch memory and are added in fp32. It takes o and
/// makes delta of it: it is given an o that has the right one. `gpu` must outlive it.
std::unique_ptr<cuda::PreparedAttend> prepare_gradients(const Gpu& gpu, const kernels::AttendBackwardArgs& args,
                                                        std::vector<GradientCall> calls);

}  // namespace distattn::backends::cudnn
