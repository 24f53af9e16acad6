#pragma once
/// One forward operation as calls of cuDNN.

#include <vector>

#include "backends/cuda/attend_provider.hpp"
#include "backends/cudnn/gpu.hpp"

namespace distattn::backends::cudnn {

/// A piece of one key segment's tile.
struct AttendCall {
  std::shared_ptr<const AttendPlan> plan;
  Operands operands;   ///< without o and stats
  bool whole = false;  ///< it has all rows of the tile
  std::int64_t first_row = 0;
};

/// What starts a result and has all its rows, cuDNN writes there; everything else goes through scratch memory and is
/// merged. cuDNN's statistics have no low part: that of its partials is 0, that of what they are merged into is kept.
/// `gpu` must outlive it.
std::unique_ptr<cuda::PreparedAttend> prepare_attend(const Gpu& gpu, const kernels::AttendArgs& args,
                                                     std::vector<AttendCall> calls);

}  // namespace distattn::backends::cudnn
