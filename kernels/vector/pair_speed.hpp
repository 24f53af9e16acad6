#pragma once
/// How fast this processor multiplies pairs of bf16. Zen 4 does twice as many multiplications as with fp32, some Xeons
/// half as many: nothing but trying tells.

#include <algorithm>
#include <chrono>

#include "kernels/vector/operands.hpp"
#if defined(__AMX_BF16__)
#include "kernels/vector/tiles.hpp"
#endif

namespace distattn::kernels::vector::DISTATTN_ISA {

#if defined(__AVX512BF16__)

/// The value as if it had come from elsewhere.
DISTATTN_INLINE Vector opaque(Vector value) {
  auto bits = static_cast<__m512>(value);
  __asm__ volatile("" : "+v"(bits));
  return Vector(bits);
}

inline constexpr int trial_sums = 12, trial_steps = 500;

/// Seconds of some hundred steps of independent sums.
template <class Step>
inline double seconds_of(Step step) {
  Vector sum[trial_sums];
  for (Vector& some : sum) some = 0.f;
  Vector a = 1e-3f;
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < trial_steps; ++i) {
    a = opaque(a);
#pragma GCC unroll 16
    for (Vector& some : sum) some = step(a, some);
  }
  for (Vector& some : sum) some = opaque(some);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

#if defined(__AMX_BF16__)
/// Products in a trial of pairs.
inline constexpr double pair_products = 64. * tile_square * tile_square * tile_square;

inline double seconds_of_pairs() {
  const TileRegisters registers;
  alignas(64) static constexpr float zeros[4 * left_step] = {};
  alignas(64) float into[tile_square * tile_square];
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 16; ++i) multiply_square<tile_square, tile_square>(4, zeros, zeros, into);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}
#else
inline constexpr double pair_products = double{in_word} * trial_sums * trial_steps * lanes;

inline double seconds_of_pairs() {
  return seconds_of([](Vector a, Vector sum) { return multiplied(a, a, sum); });
}
#endif

/// Products of pairs a second, as a multiple of those of fp32: of the least times of short trials by turns, because
/// whatever shares the core makes both longer.
inline double pair_speed() {
  double singles = 1, both = 1;
  for (int trial = 0; trial < 40; ++trial) {
    singles = std::min(singles, seconds_of([](Vector a, Vector sum) { return fused(a, a, sum); }));
    both = std::min(both, seconds_of_pairs());
  }
  return pair_products / (trial_sums * trial_steps * lanes) * singles / both;
}

#else
inline constexpr double (*pair_speed)() = nullptr;
#endif

}  // namespace distattn::kernels::vector::DISTATTN_ISA
