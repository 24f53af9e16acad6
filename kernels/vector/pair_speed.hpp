#pragma once
/// How fast this processor multiplies pairs of bf16. Zen 4 does twice as many multiplications as with fp32, some Xeons
/// half as many: nothing but trying tells.

#include <algorithm>
#include <chrono>

#include "kernels/vector/operands.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

#if defined(__AVX512BF16__)

/// The value as if it had come from elsewhere.
DISTATTN_INLINE Vector opaque(Vector value) {
  auto bits = static_cast<__m512>(value);
  __asm__ volatile("" : "+v"(bits));
  return Vector(bits);
}

/// Seconds of some hundred steps of independent sums.
template <class Step>
inline double seconds_of(Step step) {
  constexpr int sums = 12, steps = 500;
  Vector sum[sums];
  for (Vector& some : sum) some = 0.f;
  Vector a = 1e-3f;
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) {
    a = opaque(a);
#pragma GCC unroll 16
    for (Vector& some : sum) some = step(a, some);
  }
  for (Vector& some : sum) some = opaque(some);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

/// Products of pairs a second, as a multiple of those of fp32: of the least times of short trials by turns, because
/// whatever shares the core makes both longer.
inline double pair_speed() {
  double singles = 1, both = 1;
  for (int trial = 0; trial < 40; ++trial) {
    singles = std::min(singles, seconds_of([](Vector a, Vector sum) { return fused(a, a, sum); }));
    both = std::min(both, seconds_of([](Vector a, Vector sum) { return multiplied(a, a, sum); }));
  }
  return in_word * singles / both;
}

#else
inline constexpr double (*pair_speed)() = nullptr;
#endif

}  // namespace distattn::kernels::vector::DISTATTN_ISA
