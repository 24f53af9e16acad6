#pragma once
/// What a thread does while nothing arrives: a short spin, then turns given away, then sleep, so that ranks that
/// share cores with it can compute.

#include <algorithm>
#include <chrono>
#include <thread>

namespace distattn::backends::ucx {

class Idle {
 public:
  using Clock = std::chrono::steady_clock;

  /// Something has arrived.
  void reset() { turns_ = 0; }

  void wait() {
    constexpr int spins = 64;
    constexpr auto yielding = std::chrono::microseconds(100);
    if (++turns_ <= spins) {
      if (turns_ == spins) since_ = Clock::now();
      return;
    }
    const auto idle = Clock::now() - since_;
    if (idle < yielding) {
      std::this_thread::yield();
      return;
    }
    // An eighth of what has been waited: that much longer at worst.
    const auto sleep =
        std::clamp<Clock::duration>(idle / 8, std::chrono::microseconds(20), std::chrono::microseconds(500));
    std::this_thread::sleep_for(sleep);
  }

 private:
  int turns_ = 0;
  Clock::time_point since_;
};

}  // namespace distattn::backends::ucx
