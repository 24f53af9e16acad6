#pragma once
/// Dropping weights (kernels/dropout.hpp), a vector of pairs at a time.

#include "kernels/dropout.hpp"
#include "kernels/vector/bias.hpp"
#include "kernels/vector/packing.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

using Words = stdx::rebind_simd_t<std::uint32_t, Vector>;

/// Lanes of 64 bits.
using WideWords = std::uint64_t __attribute__((vector_size(sizeof(Words))));

/// The product of the lower halves of lanes.
DISTATTN_INLINE WideWords multiply_lower(WideWords a, WideWords b) {
#if defined(__AVX512F__)
  // Zeros where a mask leaves lanes out: g++ 12 warns of the undefined vector in its own unmasked form.
  return std::bit_cast<WideWords>(_mm512_maskz_mul_epu32(0xff, std::bit_cast<__m512i>(a), std::bit_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return std::bit_cast<WideWords>(_mm256_mul_epu32(std::bit_cast<__m256i>(a), std::bit_cast<__m256i>(b)));
#elif defined(__SSE2__)
  return std::bit_cast<WideWords>(_mm_mul_epu32(std::bit_cast<__m128i>(a), std::bit_cast<__m128i>(b)));
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

/// Words in the lower halves of wide lanes, those at even and those at odd places. A product is two words at once
/// there, and what stands in upper halves changes no product of lower ones.
struct SpreadWords {
  WideWords even, odd;

  DISTATTN_INLINE SpreadWords(WideWords at_even, WideWords at_odd) : even(at_even), odd(at_odd) {}
  DISTATTN_INLINE SpreadWords(std::uint32_t word) : SpreadWords(WideWords{} + word, WideWords{} + word) {}
  DISTATTN_INLINE explicit SpreadWords(Words words)
      : SpreadWords(std::bit_cast<WideWords>(words), std::bit_cast<WideWords>(words) >> 32) {}
  DISTATTN_INLINE Words together() const {
#if defined(__AVX512F__)
    return std::bit_cast<Words>(
        _mm512_mask_shuffle_epi32(std::bit_cast<__m512i>(even), 0xaaaa, std::bit_cast<__m512i>(odd), _MM_PERM_CCAA));
#else
    return std::bit_cast<Words>((even & 0xffffffffu) | (odd << 32));
#endif
  }
  DISTATTN_INLINE friend SpreadWords operator^(SpreadWords a, SpreadWords b) {
    return {a.even ^ b.even, a.odd ^ b.odd};
  }
};

/// Those of two draws, whose rounds take turns: of one alone each waits for the one before.
struct SpreadTwice {
  SpreadWords first, second;

  DISTATTN_INLINE SpreadTwice(SpreadWords one, SpreadWords other) : first(one), second(other) {}
  DISTATTN_INLINE SpreadTwice(std::uint32_t word) : SpreadTwice(SpreadWords(word), SpreadWords(word)) {}
  DISTATTN_INLINE friend SpreadTwice operator^(SpreadTwice a, SpreadTwice b) {
    return {a.first ^ b.first, a.second ^ b.second};
  }
};

struct MultiplySpread : MultiplyWords {
  using MultiplyWords::operator();
  DISTATTN_INLINE WordProduct<SpreadTwice> operator()(SpreadTwice a, std::uint32_t factor) const {
    const auto first = (*this)(a.first, factor), second = (*this)(a.second, factor);
    return {{first.low, second.low}, {first.high, second.high}};
  }
  DISTATTN_INLINE WordProduct<SpreadWords> operator()(SpreadWords a, std::uint32_t factor) const {
    const WideWords all = WideWords{} + factor, even = multiply_lower(a.even, all), odd = multiply_lower(a.odd, all);
    return {{even, odd}, {even >> 32, odd >> 32}};
  }
};

/// Draws for the pairs of one head's queries and a segment's keys.
class Drop {
 public:
  Drop(const HeadDropout& head, const Positions& at)
      : head_(head),
        queries_(at.queries),
        first_(static_cast<std::int32_t>(at.keys.start)),
        stride_(static_cast<std::int32_t>(at.keys.stride)) {}

  /// Calls use(key, dropped) for each of the keys [first, last), with all bits of lanes whose weights are dropped, of
  /// the queries from `query`, a multiple of the lanes, on. Neighbours in fours have one draw.
  template <class Use>
  DISTATTN_INLINE void for_each_key(int query, int first, int last, Use use) const {
    const SpreadWords queries(std::bit_cast<Words>(load_bits(queries_ + query)));
    FourWords<Words> words{};
    std::uint32_t four = 0;
    for (int key = first; key < last; ++key) {
      const auto position = static_cast<std::uint32_t>(first_ + stride_ * key);
      if (key == first || position >> 2 != four) words = drawn(position >> 2, queries);
      four = position >> 2;
      use(key, signs(words[position & 3]) >> 31);
    }
  }
#if defined(__AVX512F__)
  /// The same of two vectors of queries and the four keys from `key` on, which is_whole: takes out of words of weights
  /// what is dropped. Word i, 0 or 1, has keys key + 2·i and the next one.
  DISTATTN_INLINE auto of_four_keys(int query, int key) const {
    const auto queries = [&](int v) { return SpreadWords(std::bit_cast<Words>(load_bits(queries_ + query + v))); };
    const auto four = static_cast<std::uint32_t>(first_ + key) >> 2;
    const auto drawn = words_of_philox<SpreadTwice>(four, SpreadTwice(queries(0), queries(lanes)));
    const __m512i limit = _mm512_set1_epi32(head_.limit << 1);
    return [drawn, limit](Vector word, unsigned i, int v) {
      const auto dropped = [&](unsigned which) {
        const SpreadWords& words = v == 0 ? drawn[2 * i + which].first : drawn[2 * i + which].second;
        return _mm512_cmplt_epu32_mask(std::bit_cast<__m512i>(words.together()), limit);
      };
      auto bits = _mm512_castps_si512(static_cast<__m512>(word));
      bits = _mm512_mask_and_epi32(bits, dropped(0), bits, _mm512_set1_epi32(static_cast<std::int32_t>(0xffff0000u)));
      bits = _mm512_mask_and_epi32(bits, dropped(1), bits, _mm512_set1_epi32(0xffff));
      return Vector(_mm512_castsi512_ps(bits));
    };
  }
#endif
  /// Factors of the weights of a query and of the keys from `key` on.
  DISTATTN_INLINE Vector at_keys(int query, int key) const { return factors(at_keys_drawn(query, key)); }
  /// A sign where they are 0.
  DISTATTN_INLINE Bits signs_at_keys(int query, int key) const { return signs(at_keys_drawn(query, key)); }

  /// Whether keys from `key` on are neighbours, and the first is the first that its draw is for.
  bool is_whole(int key) const { return stride_ == 1 && (first_ + key) % 4 == 0; }
  /// Calls use(query, i, signs) for `rows` queries and `count` keys from `key` on, which is_whole, a vector of keys
  /// key + i at a time. Each lane draws for four keys.
  template <class Use>
  DISTATTN_INLINE void for_each_row(int rows, int key, int count, Use use) const {
    // Transposed by fours of lanes, the draws of lanes 0, 4, 8, … are those of the first vector of keys.
    const Words places([](auto lane) {
      constexpr auto at = static_cast<std::uint32_t>(lane), fours = static_cast<std::uint32_t>(lanes / 4);
      return at % 4 * fours + at / 4;
    });
    for (int i = 0; i < count; i += 4 * lanes) {
      const SpreadWords fours(Words(static_cast<std::uint32_t>(first_ + key + i) >> 2) + places);
      for (int row = 0; row < rows; ++row) {
        const auto words = drawn(fours, static_cast<std::uint32_t>(queries_[row]));
        const auto as_lanes = [&](unsigned word) { return std::bit_cast<Lanes>(words[word]); };
        const Fours<Lanes> keys = transposed(Fours<Lanes>{as_lanes(0), as_lanes(1), as_lanes(2), as_lanes(3)});
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) {
          if (i + v * lanes < count) use(row, i + v * lanes, signs(std::bit_cast<Words>(keys.row[v])));
        }
      }
    }
  }

 private:
  DISTATTN_INLINE Words at_keys_drawn(int query, int key) const {
    const Words positions(
        [&](auto lane) { return static_cast<std::uint32_t>(first_ + stride_ * (key + static_cast<int>(lane))); });
    const auto words = drawn(SpreadWords(positions >> 2), static_cast<std::uint32_t>(queries_[query]));
    const Words odd = 0u - (positions & 1u), upper = 0u - (positions >> 1 & 1u);
    const auto either = [](Words where, Words a, Words b) { return (a & ~where) | (b & where); };
    return either(upper, either(odd, words[0], words[1]), either(odd, words[2], words[3]));
  }
  template <class Some, class Keys, class Queries>
  DISTATTN_INLINE FourWords<Some> words_of_philox(Keys key, Queries query) const {
    return philox<Some>(key, query, head_.head, head_.offset, head_.key0, head_.key1, MultiplySpread{});
  }
  template <class Keys, class Queries>
  DISTATTN_INLINE FourWords<Words> drawn(Keys key, Queries query) const {
    const auto words = words_of_philox<SpreadWords>(key, query);
    return {words[0].together(), words[1].together(), words[2].together(), words[3].together()};
  }
  /// A sign where a word says that its weight is dropped.
  DISTATTN_INLINE Bits signs(Words word) const { return std::bit_cast<Bits>(word >> 1) - head_.limit; }
  DISTATTN_INLINE Vector factors(Words word) const {
    return replace(signs(word) >> 31, Vector(static_cast<float>(head_.kept)), 0.f);
  }

  HeadDropout head_;
  const std::int32_t* queries_;
  std::int32_t first_, stride_;
};

/// Gives a sign to weights that dropout takes away, of rows of queries and `count` keys from `key` on, whole vectors. A
/// loop of its own: draws are long, and what products do at their end stands there for every register.
inline void mark_dropped(const Drop& drop, int rows, int key, int count, float* weights, int stride) {
  const auto mark = [&](int row, int j, Bits signs) {
    float* const at = weights + row * stride + j;
    store(at, std::bit_cast<Vector>(std::bit_cast<Bits>(load(at)) ^ (signs & sign_bit)));
  };
  if (drop.is_whole(key)) return drop.for_each_row(rows, key, count, mark);
  for (int row = 0; row < rows; ++row) {
    for (int j = 0; j < count; j += lanes) mark(row, j, drop.signs_at_keys(row, key + j));
  }
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
