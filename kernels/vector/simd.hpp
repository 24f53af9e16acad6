#pragma once
/// Vectors of float in whatever width this file is compiled for. Everything compiled per instruction set lives in a
/// namespace of its own and is inlined, so that no symbol is shared between them.

#include <bit>
#include <cstdint>
#include <experimental/simd>
#include <limits>

#include "kernels/scores.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#if !defined(DISTATTN_ISA)
#error "DISTATTN_ISA names the namespace of the instruction set that this file is compiled for"
#endif

#define DISTATTN_INLINED __attribute__((always_inline))
#define DISTATTN_INLINE inline DISTATTN_INLINED

namespace distattn::kernels::vector::DISTATTN_ISA {

namespace stdx = std::experimental;

using Vector = stdx::native_simd<float>;
using Bits = stdx::rebind_simd_t<std::int32_t, Vector>;

inline constexpr float minus_infinity = -__builtin_inff();
inline constexpr float lowest = -3.4028234663852886e38f;
inline constexpr float log2_e = 1.4426950408889634f;
inline constexpr int lanes = static_cast<int>(Vector::size());

DISTATTN_INLINE Vector load(const float* from) { return Vector(from, stdx::vector_aligned); }
DISTATTN_INLINE void store(float* into, Vector value) { value.copy_to(into, stdx::vector_aligned); }

/// The first `count` lanes from memory, zeros behind them. Words that are pairs of bf16 may lie between those of
/// floats.
DISTATTN_INLINE Vector load_first(const float* from, int count) {
  if (count >= lanes) return Vector(from, stdx::element_aligned);
  return Vector([&](auto lane) {
    float word = 0;
    if (static_cast<int>(lane) < count) __builtin_memcpy(&word, from + lane, sizeof word);
    return word;
  });
}
DISTATTN_INLINE void store_first(float* into, Vector value, int count) {
  if (count >= lanes) return value.copy_to(into, stdx::element_aligned);
  alignas(64) float all[lanes];
  store(all, value);
  for (int lane = 0; lane < count; ++lane) into[lane] = all[lane];
}

/// The larger, lane by lane. Where `b` is NaN so is the result. (stdx::max leaves NaN to the compiler.)
DISTATTN_INLINE Vector larger(Vector a, Vector b) {
#if defined(__AVX512F__)
  // All lanes by mask: g++ 12 warns of the undefined vector in its own unmasked form.
  return Vector(_mm512_mask_max_ps(static_cast<__m512>(b), 0xffff, static_cast<__m512>(a), static_cast<__m512>(b)));
#elif defined(__AVX__)
  return Vector(_mm256_max_ps(static_cast<__m256>(a), static_cast<__m256>(b)));
#elif defined(__SSE2__)
  return Vector(_mm_max_ps(static_cast<__m128>(a), static_cast<__m128>(b)));
#elif defined(__ARM_NEON)
  return Vector(vmaxq_f32(static_cast<float32x4_t>(a), static_cast<float32x4_t>(b)));
#else
#error "name the instruction that keeps a NaN in the second operand"
#endif
}

/// The smaller, lane by lane. Where `b` is NaN so is the result.
DISTATTN_INLINE Vector lesser(Vector a, Vector b) {
#if defined(__AVX512F__)
  return Vector(_mm512_mask_min_ps(static_cast<__m512>(b), 0xffff, static_cast<__m512>(a), static_cast<__m512>(b)));
#elif defined(__AVX__)
  return Vector(_mm256_min_ps(static_cast<__m256>(a), static_cast<__m256>(b)));
#elif defined(__SSE2__)
  return Vector(_mm_min_ps(static_cast<__m128>(a), static_cast<__m128>(b)));
#else
  return Vector(vminq_f32(static_cast<float32x4_t>(a), static_cast<float32x4_t>(b)));
#endif
}

/// a·b + c, rounded once where there is an instruction for it. Left to themselves compilers join some products of a sum
/// and not others, and both passes must round scores alike.
DISTATTN_INLINE Vector fused(Vector a, Vector b, Vector c) {
#if defined(__AVX512F__)
  return Vector(_mm512_fmadd_ps(static_cast<__m512>(a), static_cast<__m512>(b), static_cast<__m512>(c)));
#elif defined(__FMA__)
  return Vector(_mm256_fmadd_ps(static_cast<__m256>(a), static_cast<__m256>(b), static_cast<__m256>(c)));
#elif defined(__ARM_NEON)
  return Vector(vfmaq_f32(static_cast<float32x4_t>(c), static_cast<float32x4_t>(a), static_cast<float32x4_t>(b)));
#else
  return a * b + c;
#endif
}

/// e^x for x ≤ 0, within (1.1 + |x| / 8) · 1e-7 of its size; 0 below −69, where weights times ordinary numbers would
/// come near the denormals, which take some processors a hundred cycles. NaN stays NaN.
DISTATTN_INLINE Vector exp(Vector x) {
  // Adding 1.5·2^23 leaves round(x·log2e) in the low bits; `least` more make them the exponent of 2^-27 times a power,
  // which is 0 for the least. The factor 2^27 is in the polynomial.
  constexpr int least = 100;
  constexpr float shift = 12582912.f + least, unit = 1 << (127 - least);
  x = larger(Vector(-69.32f), x);
  const Vector shifted = x * log2_e + shift;
  const Vector fraction = x * log2_e - (shifted - shift);
  Vector power = Vector(unit * 1.3264727e-3f);
  power = power * fraction + unit * 9.6715129e-3f;
  power = power * fraction + unit * 5.5507337e-2f;
  power = power * fraction + unit * 2.4022242e-1f;
  power = power * fraction + unit * 6.9314698e-1f;
  power = power * fraction + unit;
  return power * std::bit_cast<Vector>(std::bit_cast<Bits>(shifted) << 23);
}

/// ln x as a multiple of ln 2 and the rest, at most ½ ln 2: `high` is exact, `rest` within 3e-8. For x > 0 that is no
/// denormal; NaN stays NaN.
template <class Real>
struct Logarithm {
  Real high, rest;
};
DISTATTN_INLINE Logarithm<Vector> log(Vector x) {
  constexpr std::int32_t sqrt_half = 0x3f3504f3;
  constexpr float ln_2_high = 0.693359375f, ln_2_low = -2.12194440e-4f;  // nine bits, so that multiples are exact
  const Bits bits = std::bit_cast<Bits>(x);
  const Bits exponent = (bits - sqrt_half) >> 23;
  const Vector mantissa = std::bit_cast<Vector>(bits - (exponent << 23));  // from √½ to √2
  const Vector t = (mantissa - 1.f) / (mantissa + 1.f), square = t * t;    // ln mantissa = 2 artanh t
  Vector series = Vector(2.f / 9.f);
  series = series * square + 2.f / 7.f;
  series = series * square + 2.f / 5.f;
  series = series * square + 2.f / 3.f;
  series = series * square + 2.f;
  const Vector twos = stdx::static_simd_cast<Vector>(exponent);
  return {twos * ln_2_high, twos * ln_2_low + (series * t + x * 0.f)};
}

/// The same of one number. (Of a temporary vector, operator[] refers to nothing.)
DISTATTN_INLINE float exp(float x) {
  const Vector power = exp(Vector(x));
  return power[0];
}
DISTATTN_INLINE Logarithm<float> log(float x) {
  const Logarithm<Vector> logarithm = log(Vector(x));
  return {logarithm.high[0], logarithm.rest[0]};
}

/// 1 / x, within 7e-8 of its size and exact of 1, for x from 1 to 2; NaN stays NaN. A division of 16 lanes takes as
/// long as many products of theirs.
DISTATTN_INLINE Vector reciprocal(Vector x) {
#if defined(__AVX512F__)
  const Vector near(_mm512_maskz_rcp14_ps(0xffff, static_cast<__m512>(x)));
  return fused(near, fused(-x, near, Vector(1.f)), near);
#else
  return 1.f / x;
#endif
}

/// p = e^(−2|x|) and p − 1, each within its own rounding however small it is; 0 and −1 beyond 34.6, where weights times
/// p would come near the denormals. NaN stays NaN.
struct Decay {
  Vector power, less_1;
};
DISTATTN_INLINE Decay decay(Vector x) {
  constexpr int least = 100;  // as exp() does it, but for the bounds of the polynomial, which is of (2^f − 1) / f
  constexpr float shift = 12582912.f + least, unit = 1 << (127 - least), twos = -2.f * log2_e;
  x = lesser(Vector(34.66f), stdx::abs(x));
  const Vector shifted = fused(x, Vector(twos), Vector(shift));
  const Vector fraction = fused(x, Vector(twos), shift - shifted);
  Vector power = Vector(unit * 1.54035124e-4f);
  power = fused(power, fraction, Vector(unit * 1.33907355e-3f));
  power = fused(power, fraction, Vector(unit * 9.61823749e-3f));
  power = fused(power, fraction, Vector(unit * 5.55035743e-2f));
  power = fused(power, fraction, Vector(unit * 2.40226498e-1f));
  power = fused(power, fraction, Vector(unit * 6.93147188e-1f));
  const Vector twos_power = std::bit_cast<Vector>(std::bit_cast<Bits>(shifted) << 23);
  return {twos_power * fused(power, fraction, Vector(unit)),
          fused(twos_power, power * fraction, fused(twos_power, Vector(unit), Vector(-1.f)))};
}

inline constexpr std::int32_t sign_bit = std::numeric_limits<std::int32_t>::min();

/// The size of `value` with the sign of `as`.
DISTATTN_INLINE Vector signed_as(Vector as, Vector value) {
  const Bits sign = sign_bit;
  return std::bit_cast<Vector>((std::bit_cast<Bits>(as) & sign) | (std::bit_cast<Bits>(value) & ~sign));
}

/// `by` in lanes where all bits of `where` are set, `value` where none is.
DISTATTN_INLINE Vector replace(Bits where, Vector value, Vector by) {
  return std::bit_cast<Vector>((std::bit_cast<Bits>(value) & ~where) | (std::bit_cast<Bits>(by) & where));
}

/// All bits of lanes whose sign is set.
DISTATTN_INLINE Bits negative_lanes(Vector x) { return std::bit_cast<Bits>(x) >> 31; }

DISTATTN_INLINE Vector magnitude(Vector x) { return std::bit_cast<Vector>(std::bit_cast<Bits>(x) & 0x7fffffff); }

/// All bits of lanes that have the same bits.
DISTATTN_INLINE Bits same_lanes(Vector a, Vector b) {
  const Bits differences = std::bit_cast<Bits>(a) ^ std::bit_cast<Bits>(b);
  return ~((differences | -differences) >> 31);
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA

namespace distattn::kernels {

/// Scores within 3e-7 of their size, and never beyond the cap; derivatives within (3.5 + |x| / 2) · 1e-7 of their size,
/// x = product / cap, where there is an instruction for a·b + c. A polynomial makes those of products up to half of
/// the cap, which most are, in half of the time: lane by lane, whatever the others are.
template <>
struct Cap<vector::DISTATTN_ISA::Vector> {
  using Vector = vector::DISTATTN_ISA::Vector;
  using Bits = vector::DISTATTN_ISA::Bits;
  static constexpr float quarter = 0.25f;

  Vector cap, inverse;

  DISTATTN_INLINE Vector score(Vector product) const { return curve(product).score; }
  DISTATTN_INLINE Vector derivative(Vector product) const { return curve(product).derivative; }
  DISTATTN_INLINE Curve<Vector> curve(Vector product) const {
    const Vector x = product * inverse, square = x * x;
    const Curve<Vector> near = near_curve(product, x, square);
    if (all_of(square < quarter)) [[likely]]
      return near;
    // Not by stdx::where: clang 14 takes wrong lanes, or none, with the masks of AVX-512.
    const Bits is_near = (std::bit_cast<Bits>(square) - std::bit_cast<std::int32_t>(quarter)) >> 31;
    const Curve<Vector> far = far_curve(x);
    return {vector::DISTATTN_ISA::replace(is_near, far.score, near.score),
            vector::DISTATTN_ISA::replace(is_near, far.derivative, near.derivative)};
  }

 private:
  /// −0, which no compiler knows: the product that it is added to is rounded here, and not together with what a caller
  /// adds, so that it has the same bits in both passes.
  DISTATTN_INLINE Vector nothing() const { return cap * -0.f; }
  /// Of tanh x / x within 2e-8 of its size.
  DISTATTN_INLINE Curve<Vector> near_curve(Vector product, Vector x, Vector square) const {
    using vector::DISTATTN_ISA::fused;
    Vector share = 1.72414892e-2f;
    share = fused(share, square, Vector(-5.30454934e-2f));
    share = fused(share, square, Vector(1.33258792e-1f));
    share = fused(share, square, Vector(-3.33331436e-1f));
    share = fused(share, square, Vector(1.f));
    const Vector value = x * share;
    return {fused(product, share, nothing()), fused(-value, value, Vector(1.f))};
  }
  DISTATTN_INLINE Curve<Vector> far_curve(Vector x) const {
    const auto [power, less_1] = vector::DISTATTN_ISA::decay(x);
    const Vector half = vector::DISTATTN_ISA::reciprocal(less_1 + 2.f);
    const Vector value = vector::DISTATTN_ISA::signed_as(x, less_1 * half);
    return {vector::DISTATTN_ISA::fused(value, cap, nothing()), 4.f * power * half * half};
  }
};

}  // namespace distattn::kernels
