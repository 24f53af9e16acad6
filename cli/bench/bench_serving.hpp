#pragma once
/// How fast requests are served.

#include <vector>

#include "cli/bench/bench_rows.hpp"
#include "cli/bench/serving_mix.hpp"
#include "cli/rows/bench.hpp"

namespace distattn::cli {

struct ServingRequest {
  ServingMix mix;
  std::int64_t page = 64;  ///< 0: a request's tokens lie one behind the other
};

/// A row for each number of ranks and element type. Collective.
std::vector<ServingRow> serving_rows(World& launched, const BenchRequest& request, const ServingRequest& serving,
                                     Peaks& peaks);

}  // namespace distattn::cli
