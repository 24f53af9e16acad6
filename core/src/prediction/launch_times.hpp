#pragma once
/// How work becomes time: what a rank computes in a step is one launch.

#include <span>

#include "distattn/machine.hpp"
#include "distattn/problem.hpp"
#include "distattn/simulate.hpp"

namespace distattn {

/// One pass on one machine. Thread-safe.
class LaunchTimes {
 public:
  struct Launch {
    double seconds = 0;          ///< of one thread, or of a device, with speed 1
    double besides_s = 0;        ///< takes as long with any number of threads, at any speed
    std::int64_t few_bytes = 0;  ///< keys that tiles of few queries read, whose time is in `seconds`
  };

  /// `ranks` compute at the same time. Throws as Machine::rates_of does.
  LaunchTimes(const Problem& problem, Pass pass, const Machine& machine, int ranks);

  /// What a step computes. `expansion_flops` as in ProgramSketch::Step.
  Launch of(std::span<const ProgramSketch::Work> works, double expansion_flops) const;

  /// Seconds of tiles that are no tiles of few queries, as above. `pairs` are those that a kernel computes, of all
  /// tiles; `side` as ProgramSketch::Work::side has it.
  double of_tiles(double tiles, double pairs, Coverage coverage, double side) const {
    const RateCurve& curve = coverage == Coverage::full ? rates_.full : rates_.partial;
    return tiles * tile_s_ + pairs * (flops_per_pair_ / curve.at(side) + pair_s_);
  }
  RatesBy rates_by() const { return by_; }

 private:
  KernelRates rates_;
  RatesBy by_;
  double flops_per_pair_, pair_s_, tile_s_, launch_s_, product_flops_per_s_;
  FewQueries few_;
  DType dtype_;
  Pass pass_;
  double ranks_of_node_;
};

}  // namespace distattn
