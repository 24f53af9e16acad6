#pragma once
/// Dropping weights (kernels/dropout.hpp), a vector of pairs at a time.

#include "kernels/dropout.hpp"
#include "kernels/vector/bias.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

using Words = stdx::rebind_simd_t<std::uint32_t, Vector>;

DISTATTN_INLINE WordProduct<Words> multiply_words(Words a, std::uint32_t factor) {
#if defined(__AVX512F__)
  // Zeros where a mask leaves lanes out: g++ 12 warns of the undefined vector in its own unmasked forms.
  const auto x = static_cast<__m512i>(a), f = _mm512_set1_epi64(factor);
  const __m512i even = _mm512_maskz_mul_epu32(0xff, x, f);
  const __m512i odd = _mm512_maskz_mul_epu32(0xff, _mm512_maskz_srli_epi64(0xff, x, 32), f);
  return {Words(_mm512_mask_blend_epi32(0xaaaa, even, _mm512_maskz_slli_epi64(0xff, odd, 32))),
          Words(_mm512_mask_blend_epi32(0xaaaa, _mm512_maskz_srli_epi64(0xff, even, 32), odd))};
#elif defined(__AVX2__)
  const auto x = static_cast<__m256i>(a), f = _mm256_set1_epi64x(factor);
  const __m256i even = _mm256_mul_epu32(x, f), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), f);
  return {Words(_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa)),
          Words(_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa))};
#else
  const auto half = [&](int shift) {
    return Words([&](auto lane) { return static_cast<std::uint32_t>(std::uint64_t{a[lane]} * factor >> shift); });
  };
  return {half(0), half(32)};
#endif
}

/// Draws for the pairs of one head's queries and a segment's keys.
class Drop {
 public:
  Drop(const HeadDropout& head, const Positions& at)
      : head_(head),
        queries_(at.queries),
        first_(static_cast<std::int32_t>(at.keys.start)),
        stride_(static_cast<std::int32_t>(at.keys.stride)) {}

  /// Calls use(key, factors) for each of the keys [first, last), with the factors of the weights of the queries from
  /// `query`, a multiple of the lanes, on. Neighbours in fours have one draw.
  template <class Use>
  DISTATTN_INLINE void for_each_key(int query, int first, int last, Use use) const {
    const auto queries = std::bit_cast<Words>(load_bits(queries_ + query));
    FourWords<Words> words{};
    std::uint32_t four = 0;
    for (int key = first; key < last; ++key) {
      const auto position = static_cast<std::uint32_t>(first_ + stride_ * key);
      if (key == first || position >> 2 != four) words = drawn(Words(position >> 2), queries);
      four = position >> 2;
      use(key, factors(words[position & 3]));
    }
  }
  /// Factors of the weights of a query and of the keys from `key` on.
  DISTATTN_INLINE Vector at_keys(int query, int key) const {
    const Words positions(
        [&](auto lane) { return static_cast<std::uint32_t>(first_ + stride_ * (key + static_cast<int>(lane))); });
    const auto words = drawn(positions >> 2, Words(static_cast<std::uint32_t>(queries_[query])));
    const Words odd = 0u - (positions & 1u), upper = 0u - (positions >> 1 & 1u);
    const auto either = [](Words where, Words a, Words b) { return (a & ~where) | (b & where); };
    return factors(either(upper, either(odd, words[0], words[1]), either(odd, words[2], words[3])));
  }

 private:
  DISTATTN_INLINE FourWords<Words> drawn(Words key, Words query) const {
    return philox<Words>({key, query, Words(head_.head), Words(head_.offset)}, head_.key0, head_.key1,
                         [](Words a, std::uint32_t factor) { return multiply_words(a, factor); });
  }
  DISTATTN_INLINE Vector factors(Words word) const {
    const Bits dropped = (std::bit_cast<Bits>(word >> 1) - head_.limit) >> 31;
    return replace(dropped, Vector(static_cast<float>(head_.kept)), 0.f);
  }

  HeadDropout head_;
  const std::int32_t* queries_;
  std::int32_t first_, stride_;
};

/// Gives a sign to weights that dropout takes away, of rows of queries and `count` keys from `key` on, whole vectors. A
/// loop of its own: draws are long, and what products do at their end stands there for every register.
inline void mark_dropped(const Drop& drop, int rows, int key, int count, float* weights, int stride) {
  for (int row = 0; row < rows; ++row) {
    for (int j = 0; j < count; j += lanes) {
      float* const at = weights + row * stride + j;
      const Vector weight = load(at);
      store(at, replace(same_lanes(drop.at_keys(row, key + j), 0.f), weight, -weight));
    }
  }
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
