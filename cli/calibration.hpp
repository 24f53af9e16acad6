#pragma once
/// Measures this machine: tiles of every size on all cores, copies between ranks, merges.

#include <functional>
#include <string>
#include <vector>

#include "distattn/calibrate.hpp"

namespace distattn::cli {

struct CalibrationOptions {
  std::string backend;
  std::vector<DType> dtypes = {DType::fp32, DType::bf16, DType::fp16};
  int heads = 4, kv_heads = 4, head_dim = 64;
  std::int64_t largest_tile = 2048;
  int runs = 5;  ///< of which the fastest counts: whatever else runs here only slows them
};

/// Runs attentions on ranks that are threads of this process, one a core, and reads their timelines. `progress` is
/// told what comes next. Less than a minute on an idle machine.
Measurements calibrate(const CalibrationOptions& options, const std::function<void(const std::string&)>& progress);

}  // namespace distattn::cli
