#pragma once
/// The largest of numbers that several threads have.

namespace distattn::kernels {

/// The largest score of a row, NaN if one is NaN, given the largest that is not and the sum of weights: that is NaN if
/// a score is NaN, or +infinity.
[[gnu::always_inline]] inline float top_of_row(float top, float sum) {
  return sum != sum && top < __builtin_inff() ? sum : top;
}

/// largest = value if that is larger, or no number. The order of calls does not matter. Inlined, because code for
/// different instruction sets must not share symbols.
template <class Real>
[[gnu::always_inline]] inline void raise(Real& largest, Real value) {
  Real before;
  __atomic_load(&largest, &before, __ATOMIC_RELAXED);
  while (!(before >= value) && before == before) {
    if (__atomic_compare_exchange(&largest, &before, &value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
  }
}

/// largest = the largest score of `count` rows, given the largest of each that is not NaN, and its sum of weights.
[[gnu::always_inline]] inline void raise_to(float& largest, const float* tops, const float* sums, int count) {
  float top = -__builtin_inff();
  for (int i = 0; i < count; ++i) {
    const float mine = top_of_row(tops[i], sums[i]);
    top = mine > top || mine != mine ? mine : top;
  }
  raise(largest, top);
}

}  // namespace distattn::kernels
