#pragma once
/// A program's compute steps as launches on a space, made once: running a step looks nothing up and uploads nothing.

#include <memory>
#include <vector>

#include "backends/batches.hpp"
#include "backends/kokkos/spaces/streams.hpp"

namespace distattn::backends {

class SpaceLaunches {
 public:
  /// Uploads the lists of all steps on `stream`, which has to be waited for. `dropout` lies on the device: which
  /// weights a run drops; null if none are.
  SpaceLaunches(const Batches& batches, std::size_t steps, kernels::portable::SpaceDevice& space, SpaceStreams& streams,
                SpaceStream& stream, const kernels::Dropout* dropout);

  /// Starts the step's kernels, in their order.
  void start(std::size_t step, SpaceStream& stream) const;

 private:
  std::vector<std::vector<kernels::portable::SpaceLaunch>> steps_;
  std::vector<std::byte> lists_;  // what device_lists_ holds, kept until it has been copied
  std::shared_ptr<std::byte> device_lists_;
};

}  // namespace distattn::backends
