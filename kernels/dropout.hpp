#pragma once
/// Which weights are dropped: a function of the call's numbers and of the pair's place in the whole attention alone, so
/// that every schedule, on any number of ranks, drops the same ones in both passes.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/arguments.hpp"

namespace distattn::kernels {

/// What Philox takes and gives.
template <class Words>
struct FourWords {
  Words of[4];

  DISTATTN_HOST_DEVICE constexpr const Words& operator[](unsigned i) const { return of[i]; }
};

/// What rounds of Philox go on from, each word of its own type.
template <class A, class B, class C, class D>
struct Counter {
  A a;
  B b;
  C c;
  D d;
};

/// One round. What follows from numbers that all lanes have in common alone is such a number again.
template <class A, class B, class C, class D, class Multiply>
[[gnu::always_inline]] DISTATTN_HOST_DEVICE inline auto philox_round(const Counter<A, B, C, D>& counter,
                                                                     std::uint32_t key0, std::uint32_t key1,
                                                                     Multiply multiply) {
  const auto [low0, high0] = multiply(counter.a, std::uint32_t{0xd2511f53});
  const auto [low1, high1] = multiply(counter.c, std::uint32_t{0xcd9e8d57});
  auto a = high1 ^ counter.b;
  auto c = high0 ^ counter.d;
  a = a ^ decltype(a)(key0);
  c = c ^ decltype(c)(key1);
  using Low0 = std::remove_const_t<decltype(low0)>;
  using Low1 = std::remove_const_t<decltype(low1)>;
  return Counter<decltype(a), Low1, decltype(c), Low0>{a, low1, c, low0};
}

/// Philox 4×32 with 10 rounds (Salmon et al. 2011) of the counter (a, b, c, d), over scalars or vectors of 32 bits
/// without a sign, or some of each: after three rounds every word depends on all. `multiply` gives the lower and the
/// upper half of a product.
template <class Words, class A, class B, class C, class D, class Multiply>
[[gnu::always_inline]] DISTATTN_HOST_DEVICE inline FourWords<Words> philox(A a, B b, C c, D d, std::uint32_t key0,
                                                                           std::uint32_t key1, Multiply multiply) {
  constexpr std::uint32_t step0 = 0x9e3779b9, step1 = 0xbb67ae85;
  const auto first = philox_round(Counter<A, B, C, D>{a, b, c, d}, key0, key1, multiply);
  const auto second = philox_round(first, key0 + step0, key1 + step1, multiply);
  const auto third = philox_round(second, key0 + 2 * step0, key1 + 2 * step1, multiply);
  Counter<Words, Words, Words, Words> counter{Words(third.a), Words(third.b), Words(third.c), Words(third.d)};
  for (std::uint32_t round = 3; round < 10; ++round) {
    counter = philox_round(counter, key0 + round * step0, key1 + round * step1, multiply);
  }
  return {counter.a, counter.b, counter.c, counter.d};
}

template <class Words>
struct WordProduct {
  Words low, high;
};

struct MultiplyWords {
  DISTATTN_HOST_DEVICE constexpr WordProduct<std::uint32_t> operator()(std::uint32_t a, std::uint32_t b) const {
    const std::uint64_t product = std::uint64_t{a} * b;
    return {static_cast<std::uint32_t>(product), static_cast<std::uint32_t>(product >> 32)};
  }
};

/// What the rows of one head draw: of the counter (key position / 4, query position, head of the batch, offset) under
/// the seed the word (key position mod 4), whose upper 31 bits are below limit() where the weight is dropped.
struct HeadDropout {
  std::uint32_t key0 = 0, key1 = 0, head = 0, offset = 0;
  std::int32_t limit = 0;
  double kept = 1;                             ///< what the other weights are multiplied by
  static constexpr double most = 1 - 0x1p-31;  ///< of the probabilities that 31 bits tell apart

  HeadDropout() = default;
  /// `head` of the whole problem.
  DISTATTN_HOST_DEVICE HeadDropout(const Dropout& dropout, std::int64_t batch, std::int64_t head_of_all)
      : key0(static_cast<std::uint32_t>(dropout.seed)),
        key1(static_cast<std::uint32_t>(dropout.seed >> 32)),
        head(static_cast<std::uint32_t>(batch * dropout.heads + head_of_all)),
        offset(dropout.offset),
        limit(static_cast<std::int32_t>(
            std::lround(dropout.probability < most ? dropout.probability * 0x1p31 : most * 0x1p31))),
        kept(1 / (1 - dropout.probability)) {}

  /// What a query draws for the keys 4·quad … 4·quad+3.
  DISTATTN_HOST_DEVICE FourWords<std::uint32_t> words(std::uint32_t query, std::uint32_t quad) const {
    return philox<std::uint32_t>(quad, query, head, offset, key0, key1, MultiplyWords{});
  }
  DISTATTN_HOST_DEVICE bool keeps(std::uint32_t word) const { return static_cast<std::int32_t>(word >> 1) >= limit; }
  /// What the weight of a pair is multiplied by: 0 or `kept`.
  DISTATTN_HOST_DEVICE double factor(std::int64_t query, std::int64_t key) const {
    const auto drawn = words(static_cast<std::uint32_t>(query), static_cast<std::uint32_t>(key >> 2));
    return keeps(drawn[static_cast<unsigned>(key & 3)]) ? kept : 0;
  }
};

/// That of a head of a tile; nothing is dropped where the tile has none.
DISTATTN_HOST_DEVICE inline HeadDropout head_dropout(const TileShape& shape, std::int64_t batch, std::int64_t head) {
  return shape.dropout == nullptr ? HeadDropout() : HeadDropout(*shape.dropout, batch, shape.heads.q0 + head);
}

}  // namespace distattn::kernels
