#pragma once
/// Tiles by cuDNN: to compare with, and where its kernels are faster.

#include <memory>

#include "backends/cuda/attend_provider.hpp"
#include "backends/cudnn/library.hpp"

namespace distattn::backends::cudnn {

/// Plans are made once for each shape. Every piece of a tile is a call of cuDNN. Outputs that start no result, and all
/// gradients, go through scratch memory: gradients leave cuDNN in the inputs' type and are added in fp32. Its kernels
/// do not look at a stop flag: an abort waits for the one that runs. They take statistics as fp32 alone: gradients are
/// off by what that cannot hold (distattn/partial.hpp). Both arguments must outlive it. Throws Error(environment) if
/// cuDNN does not start.
std::unique_ptr<cuda::AttendProvider> make_provider(const Library& library, cuda::Driver& driver);

}  // namespace distattn::backends::cudnn
