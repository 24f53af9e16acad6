/// Philox against its authors' numbers, and how often weights are dropped.

#include "kernels/dropout.hpp"

#include <array>
#include <cmath>

#include "catch.hpp"

using namespace distattn::kernels;

namespace {

std::array<std::uint32_t, 4> words_of(std::array<std::uint32_t, 4> counter, std::uint32_t key0, std::uint32_t key1) {
  const auto words = philox<std::uint32_t>(counter[0], counter[1], counter[2], counter[3], key0, key1, MultiplyWords{});
  return {words[0], words[1], words[2], words[3]};
}

}  // namespace

TEST_CASE("words are those of Random123's known answers") {
  constexpr std::uint32_t ones = 0xffffffff;
  CHECK(words_of({0, 0, 0, 0}, 0, 0) == std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(words_of({ones, ones, ones, ones}, ones, ones) ==
        std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(words_of({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0) ==
        std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("weights are dropped as often as was asked for, in every head and sequence by itself") {
  for (const double probability : {0.05, 0.3, 0.5, 0.9}) {
    const Dropout dropout{.probability = probability, .seed = 11, .offset = 2, .heads = 3};
    double before = -1;
    for (const std::int64_t batch : {0, 1}) {
      for (const std::int64_t head : {0, 2}) {
        const HeadDropout draws(dropout, batch, head);
        double dropped = 0, sum = 0;
        constexpr int queries = 200, keys = 300;
        for (int q = 0; q < queries; ++q) {
          for (int k = 0; k < keys; ++k) {
            const double factor = draws.factor(q - 50, k);
            dropped += factor == 0 ? 1 : 0;
            sum += factor * (q * keys + k);
          }
        }
        const double count = queries * keys, deviation = std::sqrt(count * probability * (1 - probability));
        CAPTURE(probability, batch, head, dropped);
        CHECK(std::abs(dropped - count * probability) <= 4 * deviation);
        CHECK(sum != before);  // other pairs than those of the head before
        before = sum;
      }
    }
  }
}
