#pragma once
/// Statistics of rows in two numbers (kernels/arguments.hpp), to and from what sums are kept in.

#include "kernels/vector/packing.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

template <class Real>
struct Lse {
  Real high, low;
};

/// top + ln(sum).
template <class Real>
DISTATTN_INLINE Lse<Real> lse_of(Real top, Real sum) {
  const Logarithm<Real> logarithm = log(sum);
  const Real some = top + logarithm.high, added = some - top;  // Knuth's two-sum
  const Real lost = (top - (some - added)) + (logarithm.high - added) + logarithm.rest;
  const Real high = some + lost;
  return {high, lost - (high - some)};
}

/// The sum of a row whose largest score is a lse's high part and whose whole is the lse: e^low.
DISTATTN_INLINE float sum_of(float low) {
  if (-0x1p-6f < low && low < 0x1p-6f) return 1.f + low * (1.f + low * (1.f / 2 + low * (1.f / 6 + low * (1.f / 24))));
  return low > 0 ? 1.f / exp(-low) : exp(low);
}

DISTATTN_INLINE float widened_low(const std::uint16_t* lows, std::int64_t row) {
  if (lows == nullptr) return 0.f;
#if defined(__F16C__)
  return _cvtsh_ss(lows[row]);
#else
  return widen_fp16(lows[row]);
#endif
}

/// A finite number as fp16, to nearest, ties to even.
DISTATTN_INLINE std::uint16_t narrow_fp16(float value) {
  constexpr float most = 65504.f;
  value = value > most ? most : value < -most ? -most : value;
#if defined(__F16C__)
  // clang 14's _cvtss_sh is a macro with a literal of C99
  return static_cast<std::uint16_t>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT)));
#else
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude < 0x38800000u) {  // subnormal in fp16: the float adder does the rounding
    return static_cast<std::uint16_t>(
        sign | (std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u));
  }
  return static_cast<std::uint16_t>(sign | ((magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13));
#endif
}

/// 0 beside a high part that is no finite number.
DISTATTN_INLINE void store_low(std::uint16_t* lows, std::int64_t row, const Lse<float>& lse) {
  if (lows != nullptr) lows[row] = lse.high - lse.high == 0.f ? narrow_fp16(lse.low) : std::uint16_t{0};
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
