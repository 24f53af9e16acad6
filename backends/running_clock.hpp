#pragma once
/// Time as this process lives it.

#include <chrono>

namespace distattn::backends {

/// The steady clock without the time in which the process could not run: stopped by a signal, with a job that was
/// suspended or a machine that was frozen. Deadlines on it hold nothing against peers that were stopped together with
/// this process. Thread-safe.
class RunningClock {
 public:
  using duration = std::chrono::steady_clock::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<RunningClock>;
  static constexpr bool is_steady = true;

  static time_point now();
  /// What it showed at a moment that is not long ago.
  static time_point at(std::chrono::steady_clock::time_point moment);

  /// Stops are noticed while there is one of these, by a thread that wakes every now and then.
  class Keeper {
   public:
    /// Throws Error(environment) when the system gives no thread.
    Keeper();
    ~Keeper();
    Keeper(const Keeper&) = delete;
    Keeper& operator=(const Keeper&) = delete;
  };
};

}  // namespace distattn::backends
