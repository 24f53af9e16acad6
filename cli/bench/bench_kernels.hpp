#pragma once
/// Single kernels, timed by what a calibration measures them with.

#include <string>
#include <vector>

#include "cli/bench/calibration.hpp"
#include "cli/bench/peaks.hpp"
#include "cli/rows/bench.hpp"

namespace distattn::cli {

struct KernelRequest {
  std::vector<std::string> kernels;  ///< of kernel_names()
  std::vector<std::int64_t> tiles;   ///< tokens of a tile's side
  CalibrationOptions options;        ///< the first element type counts
};

/// attend: tiles of attention, forward and backward, full and causal; attend-variants: the same with each kernel among
/// which the backend has a choice, compared with float64 before it is timed; merge: of partials; copy: between two
/// ranks.
std::vector<std::string> kernel_names();

/// A row for each, all cores busy.
std::vector<KernelRow> kernel_rows(const KernelRequest& request, Peaks& peaks);

}  // namespace distattn::cli
