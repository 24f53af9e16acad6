#pragma once
/// Random numbers by counter: a value depends on (seed, stream, index) alone, so any rank can draw any of them.

#include <cmath>
#include <cstdint>
#include <numbers>

namespace distattn::step {

/// 64 well-mixed bits of (seed, stream, index): the finaliser of splitmix64, once for each.
inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const auto mix = [](std::uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  };
  return mix(mix(mix(seed) ^ stream) ^ index);
}

/// Standard normal, by Box and Muller.
inline double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const auto unit = [](std::uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; };
  const double radius = std::sqrt(-2.0 * std::log(unit(random_bits(seed, stream, 2 * index))));
  return radius * std::cos(2.0 * std::numbers::pi * unit(random_bits(seed, stream, 2 * index + 1)));
}

}  // namespace distattn::step
