#pragma once
/// Runs a proved schedule on ranks that are threads of this process, and times it.

#include <string>
#include <vector>

#include "inputs.hpp"
#include "prepared.hpp"
#include "rank_tensors.hpp"

namespace distattn::cli {

struct RunOptions {
  std::string backend;
  int threads = 1;  ///< of a rank
  int runs = 1, warmups = 0;
};

/// Seconds of one pass: the first run, warm-up or not, and the measured ones' least, median and percentiles.
struct Timing {
  double first_s = 0, median_s = 0, least_s = 0, p10_s = 0, p90_s = 0;
  Timeline timeline;  ///< of the measured run that is nearest the median
};

struct RunResult {
  Timing forward, backward;
  std::vector<RankTensors> ranks;
};

/// The backend of that name, or the best usable one that computes `problem`. Throws Error(usage) with what the
/// named one, or all, say against it.
std::string choose_backend(const std::string& name, const Problem& problem, Passes passes);

/// Threads of each of `ranks` ranks that share this machine's cores, unless `asked` says otherwise.
int choose_threads(int asked, int ranks);

/// Throws whatever a rank threw first, and Error(environment) when memory is not enough.
RunResult run_sharded(const Prepared& prepared, const Inputs& inputs, const RunOptions& options);

}  // namespace distattn::cli
