#pragma once
/// What the rows of `bench` must reach.

#include <optional>
#include <string>
#include <vector>

#include "cli/rows/bench.hpp"
#include "command.hpp"

namespace distattn::cli {

struct Gates {
  std::optional<double> least_gflops, most_ratio;
};

/// The rows that are farthest from their prediction, of those that have one.
std::string worst_ratios(const std::vector<BenchRow>& rows);
/// Says which rows miss a gate or are wrong.
Outcome judge(const std::vector<BenchRow>& rows, const Gates& gates);
/// Says which kernels are wrong. One that failed ends the command as it would have ended without the others.
Outcome judge_variants(const std::vector<KernelRow>& rows);

}  // namespace distattn::cli
