#pragma once
/// The largest of numbers that several threads have.

namespace distattn::kernels {

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

}  // namespace distattn::kernels
