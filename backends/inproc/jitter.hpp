#pragma once
/// Random order and delays, so that tests see deliveries that an idle machine never shows.

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <span>
#include <thread>

namespace distattn::backends::inproc {

/// Without a seed: nothing is permuted or delayed. Each lane of each rank draws from its own stream.
class Jitter {
 public:
  Jitter(std::optional<std::uint64_t> seed, std::uint32_t stream) {
    if (!seed) return;
    std::seed_seq sequence{static_cast<std::uint32_t>(*seed), static_cast<std::uint32_t>(*seed >> 32), stream};
    random_.emplace(sequence);
  }

  template <class T>
  void permute(std::span<T> items) {
    if (random_) std::shuffle(items.begin(), items.end(), *random_);
  }

  void pause() {
    if (!random_) return;
    const auto draw = (*random_)();
    if (draw % 4 == 0) std::this_thread::yield();
    if (draw % 16 == 1) std::this_thread::sleep_for(std::chrono::microseconds(draw / 16 % 50));
  }

 private:
  std::optional<std::minstd_rand> random_;
};

}  // namespace distattn::backends::inproc
