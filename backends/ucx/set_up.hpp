#pragma once
/// UCX made ready, which may take for ever.

#include <memory>
#include <optional>
#include <string>

#include "backends/running_clock.hpp"
#include "backends/ucx/worker.hpp"
#include "distattn/control.hpp"

namespace distattn::backends::ucx {

struct SetUp {
  std::unique_ptr<Context> context;
  std::unique_ptr<Worker> near, far;  ///< one for each lane

  /// For a rank of `ranks`, whose shared memory is made as Context does with `segments`. Throws Error(environment)
  /// where UCX cannot, Error(timeout) where it has not come back before the deadline, and what `control` says if
  /// another rank fails before that.
  static SetUp before(RunningClock::time_point deadline, Rank rank, int ranks,
                      const std::optional<std::string>& segments, Control& control);
};

/// Whether it sends the memory of GPUs as it lies. Throws as SetUp::before does.
bool reaches_gpus();

}  // namespace distattn::backends::ucx
