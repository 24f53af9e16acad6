#pragma once
/// Random choices for property tests, the same on every platform: no distribution of the standard library.

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <random>
#include <vector>

namespace distattn::test {

/// The seed of this run: a fixed one, or DISTATTN_TEST_SEED to look elsewhere. Tests print it.
inline std::uint64_t seed() {
  const char* given = std::getenv("DISTATTN_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : 20260101;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : bits_(seed) {}

  /// least ≤ x ≤ most; slightly uneven, which no test minds.
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(bits_() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool one_in(std::int64_t n) { return between(1, n) == 1; }
  template <class T>
  T pick(std::initializer_list<T> choices) {
    return choices.begin()[between(0, static_cast<std::int64_t>(choices.size()) - 1)];
  }
  template <class T>
  const T& pick(const std::vector<T>& choices) {
    return choices[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(choices.size()) - 1))];
  }

 private:
  std::mt19937_64 bits_;
};

}  // namespace distattn::test
