#pragma once
/// How long plans take, of packings that were never seen before.

#include <vector>

#include "cli/bench/bench_rows.hpp"
#include "cli/rows/bench.hpp"

namespace distattn::cli {

/// Every shape, number of ranks and schedule, each for `packings` draws of documents from --seed on, one after another
/// in this process.
std::vector<PlanningRow> planning_rows(const BenchRequest& request, int packings);

}  // namespace distattn::cli
