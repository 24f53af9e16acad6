#pragma once
/// What this machine's cores reach at most: what a figure is a share of.

#include <memory>
#include <string>

#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// Measures on the same threads as often as one likes: the speed of shared machines changes from minute to minute.
class PeakMeter {
 public:
  /// For elements of `dtype`, on `threads` threads at once, no more than there are cores.
  PeakMeter(DType dtype, int threads);
  ~PeakMeter();
  PeakMeter(PeakMeter&&) noexcept;

  /// A few milliseconds in the fastest instruction's loop; keeps the best.
  void measure();
  /// FLOP/s of all threads together in a loop of multiply-adds on registers alone, in seconds that they run: what other
  /// programs take is not counted. The best so far.
  double flops_per_s() const;
  /// The instruction that was fastest when the meter was made.
  const std::string& instruction() const;
  /// Bytes a second that all threads together read in sequence from memory behind the caches. Takes a second or so.
  double read_bytes_per_s();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distattn
#pragma GCC visibility pop
