#pragma once
/// Loops whose results nobody reads.

namespace distattn::kernels {

/// Independent sums: enough for the latency of a multiply-add on every pipe that a core has, and few enough to stay in
/// 16 registers beside two operands.
inline constexpr int chains = 14;

/// Makes the compiler believe that the values are read and changed: sums that begin alike stay apart.
template <class Value>
inline __attribute__((always_inline)) void keep(Value& value) {
  __asm__ volatile("" : "+m"(value));
}

}  // namespace distattn::kernels
