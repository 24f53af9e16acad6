#pragma once
/// How operands of products lie in memory: an element in each float, or, where an instruction multiplies pairs of bf16,
/// two of them in its place. Pairs lie along the dimension that a product sums over, so a sum is half as deep; results
/// are floats in either case. Words of pairs are moved as floats and never computed with.

#include <algorithm>
#include <cstring>

#include "kernels/vector/packing.hpp"
#include "kernels/vector/tile_shape.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

#if defined(__AVX512BF16__)
/// Elements of an operand in one word.
inline constexpr int in_word = 2;
#else
inline constexpr int in_word = 1;
#endif
inline constexpr bool pairs = in_word == 2;

/// Words of a row of `dim` elements, an even number.
constexpr int words_of(int dim) { return dim / in_word; }

/// Words of such a row as products take it: whole steps.
constexpr int depth_words(int dim) {
  return by_tiles ? rounded_up(words_of(dim), words_of(tile_square)) : words_of(dim);
}

/// Makes zeros of what products take of a panel of columns behind its last row.
inline void clear_depth(float* panel, int dim) {
  std::fill(panel + words_of(dim) * panel_width, panel + depth_words(dim) * panel_width, 0.f);
}

/// Terms of a sum, with those that are there for a whole step alone.
constexpr int whole_terms(int count) { return by_tiles ? rounded_up(count, tile_square) : count; }

/// The range, unless it is empty, with whole steps of sums at both ends.
constexpr Range whole_words(Range range) {
  constexpr int step = by_tiles ? tile_square : in_word;
  return range.empty() ? range : Range{range.from / step * step, rounded_up(range.to, step)};
}

/// sum + a·b of words.
DISTATTN_INLINE Vector multiplied(Vector a, Vector b, Vector sum) {
#if defined(__AVX512BF16__)
  return Vector(_mm512_dpbf16_ps(static_cast<__m512>(sum), std::bit_cast<__m512bh>(static_cast<__m512>(a)),
                                 std::bit_cast<__m512bh>(static_cast<__m512>(b))));
#else
  return fused(a, b, sum);
#endif
}

/// The product that scores are made of: keys of pairs are as they were given, others have the factor of scores.
DISTATTN_INLINE Vector scored_product(Vector sum, float factor, Vector shift) {
  if constexpr (pairs) return fused(sum, Vector(factor), shift);
  return sum + shift;
}

/// A word whose products with another one are that one's elements.
DISTATTN_INLINE Vector word_of_ones() { return Vector(pairs ? std::bit_cast<float>(0x3f803f80u) : 1.f); }

/// Either element of a word.
DISTATTN_INLINE float element_of(const float* word, int which) {
  if constexpr (!pairs) return *word;
  std::uint32_t bits;
  std::memcpy(&bits, word, sizeof bits);
  return std::bit_cast<float>(which % 2 == 0 ? bits << 16 : bits & 0xffff0000u);
}

/// Rows as operands: where they lie, or brought into `buffer`.
inline HeadRows<const float> operand_rows(const HeadRows<const void>& from, DType dtype, int count, int dim,
                                          float* buffer) {
  if constexpr (!pairs) return widened(from, dtype, count, dim, buffer);
  if (from.stride % in_word == 0) return {static_cast<const float*>(from.data), from.stride / in_word};
  for (int i = 0; i < count; ++i) {
    std::memcpy(buffer + i * words_of(dim), static_cast<const std::uint16_t*>(from.data) + i * from.stride,
                static_cast<std::size_t>(dim) * sizeof(std::uint16_t));
  }
  return {buffer, words_of(dim)};
}

#if defined(__AVX512BF16__)
/// Words of the lanes of two vectors, rounded to nearest even.
DISTATTN_INLINE Vector joined(Vector first, Vector second) {
  const __m512i both =
      std::bit_cast<__m512i>(_mm512_cvtne2ps_pbh(static_cast<__m512>(second), static_cast<__m512>(first)));
  alignas(64) static constexpr std::uint16_t places[] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                         8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i by = _mm512_load_si512(places);
  return Vector(std::bit_cast<__m512>(_mm512_maskz_permutexvar_epi16(0xffffffff, by, both)));
}

/// The lanes of two vectors as neighbours: words of lanes 0 and 1, 2 and 3, and so on.
DISTATTN_INLINE Vector neighbours(Vector first, Vector second) {
  return Vector(std::bit_cast<__m512>(_mm512_cvtne2ps_pbh(static_cast<__m512>(second), static_cast<__m512>(first))));
}

/// `count` elements of a row of bf16 as floats, zeros behind them.
DISTATTN_INLINE Vector load_bf16(const std::uint16_t* from, int count) {
  const auto mask = static_cast<__mmask16>(count >= lanes ? 0xffff : (1u << count) - 1u);
  const __m512i bits = _mm512_maskz_cvtepu16_epi32(0xffff, _mm256_maskz_loadu_epi16(mask, from));
  return std::bit_cast<Vector>(Bits(_mm512_maskz_slli_epi32(0xffff, bits, 16)));
}
#else
// Nobody asks for these where elements are alone.
DISTATTN_INLINE Vector joined(Vector first, Vector) { return first; }
DISTATTN_INLINE Vector neighbours(Vector first, Vector) { return first; }
DISTATTN_INLINE Vector load_bf16(const std::uint16_t*, int) { return 0.f; }
#endif

/// Whether no element of a word is NaN or infinite: zeros, or else NaN.
DISTATTN_INLINE Vector zeros_of(Vector word) {
  if constexpr (!pairs) return word * 0.f;
  const Bits bits = std::bit_cast<Bits>(word);
  return std::bit_cast<Vector>(bits << 16) * 0.f +
         std::bit_cast<Vector>(bits & static_cast<std::int32_t>(0xffff0000u)) * 0.f;
}

/// A number as near as an operand holds it.
DISTATTN_INLINE float as_operand(float value) {
  if constexpr (!pairs) return value;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
}

using QuadBits = std::uint32_t __attribute__((vector_size(16)));

/// Four words of pairs less `shared`, a pair. What keys share is a number of bf16 and no smaller than what
/// distinguishes them, so that mostly nothing is rounded here.
DISTATTN_INLINE Quad less_shared(Quad words, const float* shared) {
  const auto bits = std::bit_cast<QuadBits>(words);
  const auto rounded = [](Quad value) {
    const auto all = std::bit_cast<QuadBits>(value);
    return (all + 0x7fffu + (all >> 16 & 1u)) >> 16;
  };
  const Quad first = std::bit_cast<Quad>(bits << 16) - Quad{shared[0], shared[0], shared[0], shared[0]};
  const Quad second = std::bit_cast<Quad>(bits & 0xffff0000u) - Quad{shared[1], shared[1], shared[1], shared[1]};
  return std::bit_cast<Quad>(rounded(first) | rounded(second) << 16);
}

/// Keys as scores need them: what remains without `shared`, and, of floats, times their factor.
template <int Width>
inline void pack_keys_transposed(const HeadRows<const float>& from, int rows, int dim, float factor,
                                 const float* shared, float* into) {
  if constexpr (!pairs) {
    const Quad factors = {factor, factor, factor, factor};
    pack_transposed<Width>(from, rows, dim, into, [&](int x, Quad some) {
      const float less = shared[x];
      return (some - Quad{less, less, less, less}) * factors;
    });
  } else if (std::all_of(shared, shared + dim, [](float x) { return x == 0.f; })) {
    pack_transposed<Width>(from, rows, words_of(dim), into);
  } else {
    pack_transposed<Width>(from, rows, words_of(dim), into,
                           [&](int x, Quad some) { return less_shared(some, shared + in_word * x); });
  }
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
