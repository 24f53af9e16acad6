#pragma once
/// SplitMix64 (Steele, Lea, Flood 2014): 64 random bits for any (seed, counter), the same everywhere.

#include <cstdint>

namespace distattn::splitmix {

/// The finaliser: a bijection that spreads every input bit over the output.
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// The step between counters: 2^64 over the golden ratio.
inline constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;

}  // namespace distattn::splitmix
