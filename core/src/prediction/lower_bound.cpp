#include <algorithm>

#include "distattn/simulate.hpp"

namespace distattn {
namespace {

double best_rate(const KernelRates& rates, const FewQueries::Rates* few) {
  double best = few != nullptr ? few->flops_per_s : 0;
  for (const RateCurve* curve : {&rates.full, &rates.partial}) {
    for (const RateCurve::Point& point : curve->points) best = std::max(best, point.flops_per_s);
  }
  return best;
}

/// Seconds per FLOP of a pair that a query takes at least, however few keys it sees: before its first point a curve
/// counts rows, and a tile has as many rows as half the sum of its queries and keys. 0 where queries may see no key.
double row_seconds(const Problem& problem, const KernelRates& rates, const FewQueries::Rates* few) {
  if (few != nullptr || problem.mask.explicit_bands || problem.seq_q > problem.seq_kv) return 0;
  const auto of = [](const RateCurve& curve) { return curve.points.front().tile / curve.points.front().flops_per_s; };
  return std::min(of(rates.full), of(rates.partial)) / 2;
}

}  // namespace

double lower_bound(const Outline& outline, std::span<const ProgramSketch> ranks, const Machine& machine, int threads) {
  const Problem& problem = outline.sharding.problem;
  const KernelRates& rates = machine.rates_of(problem.dtype, outline.pass);
  const double flops = flops_per_pair(problem.head_dim, problem.value_dim, outline.pass);
  double pairs = 0, bytes = 0;
  for (const ProgramSketch& rank : ranks) {
    for (const ProgramSketch::Work& work : rank.works) pairs += work.pairs;
    for (const ProgramSketch::Packing* packing : {&rank.load, &rank.store})
      bytes += static_cast<double>(packing->bytes - (machine.cores > 0 ? packing->in_place_bytes : 0));
  }
  const FewQueries::Rates* const few = machine.few.of(problem.dtype, outline.pass, 1);
  const auto rows = static_cast<double>(problem.batch * problem.heads * problem.seq_q);
  const double work = flops * std::max(pairs / best_rate(rates, few), rows * row_seconds(problem, rates, few));
  const double packing = machine.memory_bytes_per_s > 0 ? bytes / machine.memory_bytes_per_s : 0;
  // Ranks that are more than the cores share them.
  const auto count = static_cast<int>(ranks.size());
  const double speed = machine.speed_of_all(count) / count;
  const double workers = machine.cores > 0 ? std::min(static_cast<double>(ranks.size()) * threads,
                                                      static_cast<double>(machine.cores) * machine.nodes)
                                           : static_cast<double>(ranks.size());
  return (work / speed + packing) / workers;
}

}  // namespace distattn
