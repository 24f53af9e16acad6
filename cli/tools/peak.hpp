#pragma once
/// Measures the peak rates of this machine's cores, which other rates are given as a share of.

#include <memory>
#include <string>

#include "distattn/types.hpp"

namespace distattn {

/// Measures on the same threads any number of times, because the speed of shared machines changes from minute to
/// minute.
class PeakMeter {
 public:
  /// For elements of `dtype`, on `threads` threads at once, no more than there are cores.
  PeakMeter(DType dtype, int threads);
  ~PeakMeter();
  PeakMeter(PeakMeter&&) noexcept;

  /// Runs the fastest instruction's loop for a few milliseconds. The best result is kept.
  void measure();
  /// FLOP/s of all threads together in a loop of multiply-adds on registers, per second of their CPU time, so that time
  /// taken by other programs does not count. The best so far.
  double flops_per_s() const;
  /// The instruction that was fastest when the meter was made.
  const std::string& instruction() const;
  /// Bytes per second that all threads together read sequentially from memory outside the caches. Takes about a second.
  double read_bytes_per_s();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distattn
