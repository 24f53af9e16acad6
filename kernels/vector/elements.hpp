#pragma once
/// Elements of tensors as vectors of float, widened in registers: for operands that are taken from memory once.

#include <type_traits>

#include "kernels/element.hpp"
#include "kernels/vector/packing.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

DISTATTN_INLINE float widen(float value) { return value; }
DISTATTN_INLINE float widen(Bf16 value) { return widen_bf16(value.bits); }
DISTATTN_INLINE float widen(Fp16 value) { return widen_fp16(value.bits); }

/// A vector of elements from `from` on, which is aligned to one.
DISTATTN_INLINE Vector load_elements(const float* from) { return Vector(from, stdx::element_aligned); }
DISTATTN_INLINE Vector load_elements(const Bf16* from) {
#if defined(__AVX512F__)
  // By masks of all lanes: g++ 12 warns of the undefined vectors in the unmasked forms.
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return std::bit_cast<Vector>(Bits(_mm512_maskz_slli_epi32(0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, bits), 16)));
#elif defined(__AVX2__)
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return std::bit_cast<Vector>(Bits(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)));
#else
  return Vector([&](auto lane) { return widen(from[lane]); });
#endif
}
DISTATTN_INLINE Vector load_elements(const Fp16* from) {
#if defined(__AVX512F__)
  return Vector(_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
#elif defined(__F16C__)
  return Vector(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#else
  return Vector([&](auto lane) { return widen(from[lane]); });
#endif
}

/// Vectors of consecutive elements, or, of two times as many, those at even places and those at odd ones.
struct Split {
  Vector even, odd;
};
#if defined(__AVX512F__)
/// Whether it takes less to widen elements split: one instruction a vector.
template <class Element>
inline constexpr bool widens_split = std::is_same_v<Element, Bf16>;

DISTATTN_INLINE Split load_split(const Bf16* from) {
  const __m512i bits = _mm512_loadu_si512(from);
  return {std::bit_cast<Vector>(Bits(_mm512_maskz_slli_epi32(0xffff, bits, 16))),
          std::bit_cast<Vector>(Bits(bits) & static_cast<std::int32_t>(0xffff0000u))};
}
/// In the order of the elements: the first half in `even`.
DISTATTN_INLINE Split in_order(const Split& split) {
  alignas(64) static constexpr std::int32_t places[] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const auto even = static_cast<__m512>(split.even), odd = static_cast<__m512>(split.odd);
  return {Vector(_mm512_permutex2var_ps(even, _mm512_load_si512(places), odd)),
          Vector(_mm512_permutex2var_ps(even, _mm512_load_si512(places + 16), odd))};
}
#else
template <class Element>
inline constexpr bool widens_split = false;
DISTATTN_INLINE Split load_split(const Bf16*) { return {0.f, 0.f}; }
DISTATTN_INLINE Split in_order(const Split& split) { return split; }
#endif

/// The first `count` of them, zeros behind.
template <class Element>
DISTATTN_INLINE Vector load_first_elements(const Element* from, int count) {
  if (count >= lanes) return load_elements(from);
  return Vector([&](auto lane) { return static_cast<int>(lane) < count ? widen(from[lane]) : 0.f; });
}

/// Calls add(x, load) for the elements of rows of `dim` a vector at a time; load(at) has zeros behind the last.
template <class Add>
DISTATTN_INLINE void for_each_vector(int dim, Add add) {
  int x = 0;
  for (; x + lanes <= dim; x += lanes) add(x, [](const auto* at) { return load_elements(at); });
  if (x < dim) add(x, [&](const auto* at) { return load_first_elements(at, dim - x); });
}

/// Calls call(rows) with the rows as those of an element type.
template <class Call>
DISTATTN_INLINE void with_element_rows(const HeadRows<const void>& rows, DType dtype, Call call) {
  if (dtype == DType::bf16) return call(HeadRows<const Bf16>{static_cast<const Bf16*>(rows.data), rows.stride});
  if (dtype == DType::fp16) return call(HeadRows<const Fp16>{static_cast<const Fp16*>(rows.data), rows.stride});
  call(HeadRows<const float>{static_cast<const float*>(rows.data), rows.stride});
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
