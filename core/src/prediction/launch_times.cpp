#include "core/src/prediction/launch_times.hpp"

namespace distattn {
namespace {

double mean_head_dim(const Problem& problem) { return (problem.head_dim + problem.value_dim) / 2.0; }

}  // namespace

LaunchTimes::LaunchTimes(const Problem& problem, Pass pass, const Machine& machine, int ranks)
    : rates_(machine.rates_of(problem.dtype, pass)),
      by_(machine.rates_by),
      flops_per_pair_(flops_per_pair(problem.head_dim, problem.value_dim, pass)),
      pair_s_(machine.tiles.pair_s[pass]),
      tile_s_(machine.tiles.seconds(pass, mean_head_dim(problem))),
      launch_s_(machine.tiles.launch_s[pass]),
      product_flops_per_s_(machine.product_flops_per_s(problem.dtype)),
      few_(machine.few),
      dtype_(problem.dtype),
      pass_(pass),
      ranks_of_node_(machine.on_a_node(ranks)) {}

LaunchTimes::Launch LaunchTimes::of(std::span<const ProgramSketch::Work> works, double expansion_flops) const {
  Launch launch;
  if (!works.empty()) launch.besides_s = launch_s_;
  if (expansion_flops > 0) launch.seconds += expansion_flops / product_flops_per_s_;
  for (const ProgramSketch::Work& work : works) {
    const auto tiles = static_cast<double>(work.tiles);
    if (const FewQueries::Rates* const few = few_.of(dtype_, pass_, work.queries)) {
      launch.seconds += tiles * tile_s_ + work.pairs * (flops_per_pair_ / few->flops_per_s + pair_s_);
      launch.few_bytes += work.key_bytes;
    } else {
      launch.seconds += of_tiles(tiles, work.computed_pairs, work.coverage, work.side(by_));
    }
  }
  if (launch.few_bytes > 0) {
    const RateCurve& rate = few_.of(dtype_, pass_, 0)->key_bytes_per_s;
    const auto bytes = static_cast<double>(launch.few_bytes);
    launch.seconds += bytes / rate.at(bytes * ranks_of_node_);
  }
  return launch;
}

}  // namespace distattn
