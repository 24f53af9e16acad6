#include "distattn/mask.hpp"

#include <algorithm>
#include <functional>
#include <limits>

#include "catch.hpp"
#include "distattn/error.hpp"
#include "support/masks.hpp"

using namespace distattn;

namespace {

constexpr std::int64_t tokens = 53;

/// Every pair lies in exactly one band if it is visible, else in none.
void require_bands_say(const Mask& mask, const std::function<bool(std::int64_t, std::int64_t)>& expected,
                       std::int64_t first_query = 0) {
  const std::vector<Band> bands = bands_of(mask);
  for (std::int64_t q = first_query; q < tokens; ++q)
    for (std::int64_t k = 0; k < tokens; ++k) {
      const auto count = std::count_if(bands.begin(), bands.end(), [&](const Band& band) { return band.holds(q, k); });
      if (count != (expected(q, k) ? 1 : 0)) FAIL("q " << q << " k " << k << " lies in " << count << " bands");
    }
}

void require_refused(const Mask& mask, const std::string& word) {
  REQUIRE_THROWS_WITH(check(mask, tokens), contains_text(word));
}

}  // namespace

TEST_CASE("every combination of options is its bands") {
  for (const bool causal : {true, false})
    for (const std::int64_t left : {-1, 0, 5, 60})
      for (const std::int64_t right : {-1, 0, 7})
        for (const std::int64_t sinks : {0, 3, 12, 60})
          for (const std::vector<std::int64_t>& documents :
               {std::vector<std::int64_t>{}, {0, 53}, {0, 11, 12, 12, 37, 53}}) {
            const Mask mask{.causal = causal, .left = left, .right = right, .sinks = sinks, .documents = documents};
            check(mask, tokens);
            require_bands_say(
                mask, [&](std::int64_t q, std::int64_t k) { return test::visible(mask, q, k); }, -9);
            REQUIRE(overlapping_bands(bands_of(mask)).first == -1);
          }
}

TEST_CASE("plain masks are one band") {
  CHECK(bands_of(causal_mask()) == std::vector<Band>{{.lo = 0}});
  CHECK(bands_of(full_mask()) == std::vector<Band>{{}});
}

TEST_CASE("a window of any size is at most unbounded") {
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  const Mask mask{.causal = false, .left = huge, .right = huge, .sinks = huge};
  CHECK(BandIndex(bands_of(mask)).pairs({-5, 10, 1}, {0, 10, 1}) == 100);
}

TEST_CASE("prefix and block-causal masks") {
  const Mask prefix = prefix_mask(tokens, 17);
  require_bands_say(prefix, [](std::int64_t q, std::int64_t k) { return k <= q || (q < 17 && k < 17); });
  CHECK(prefix.name == "prefix:17");
  CHECK(bands_of(prefix_mask(tokens, 0)).size() == 1);
  CHECK_THROWS_AS(prefix_mask(tokens, tokens + 1), Error);

  const Mask frames = block_causal_mask(tokens, 8);
  require_bands_say(frames, [](std::int64_t q, std::int64_t k) { return k / 8 <= q / 8; });
  CHECK(bands_of(frames).size() == 7);
  CHECK_THROWS_AS(block_causal_mask(tokens, 0), Error);
}

TEST_CASE("given bands are sorted, cleaned and kept within bounds") {
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  const Mask mask = band_mask({{20, 53, 0, 20, -huge, huge}, {5, 5, 0, 20, 0, 1}, {0, 20, 0, 20, 0, huge}});
  const std::vector<Band> bands = bands_of(mask);
  REQUIRE(bands.size() == 2);
  CHECK(bands[0] == Band{0, 20, 0, 20, 0, unbounded});
  CHECK(bands[1] == Band{20, 53, 0, 20, -unbounded, unbounded});
  CHECK(bands_of(band_mask({})).empty());
}

TEST_CASE("bands that share a pair are named") {
  CHECK_THROWS_WITH(band_mask({{0, 8, 0, 8, 0, 4}, {8, 16, 0, 8, 0, 4}, {4, 9, 2, 3, 2, 9}}),
                    contains_text("bands 0 and 2"));
  CHECK_NOTHROW(band_mask({{0, 8, 0, 8, 0, 4}, {0, 8, 0, 8, 5, 9}}));
  CHECK_NOTHROW(band_mask({{0, 8, 0, 8, 0, 9}, {0, 8, 4, 8, -9, -1}}));
}

TEST_CASE("masks that contradict themselves are refused") {
  require_refused({.left = -2}, "window");
  require_refused({.sinks = -1}, "sinks");
  require_refused({.documents = {1, 53}}, "start at 0");
  require_refused({.documents = {0, 20, 10, 53}}, "falls from 20 to 10");
  require_refused({.documents = {0, 20}}, "53 keys");
  require_refused({.given = {Band{}}}, "band_mask");
  Mask mask = prefix_mask(tokens, 5);
  mask.left = 3;
  require_refused(mask, "a window");
  mask.left = -1;
  mask.sinks = 3;
  require_refused(mask, "with global keys (it says itself what each query sees)");
  mask.sinks = 0;
  mask.documents = {0, 53};
  require_refused(mask, "documents");
  mask.documents.clear();
  mask.given.push_back(mask.given.front());
  require_refused(mask, "overlap");
  for (std::int64_t Band::*bound : {&Band::q0, &Band::q1, &Band::k0, &Band::k1, &Band::lo, &Band::hi}) {
    for (const std::int64_t past : {std::numeric_limits<std::int64_t>::min(), -unbounded - 1, unbounded + 1,
                                    std::numeric_limits<std::int64_t>::max()}) {
      mask.given = {Band{}};
      CHECK_NOTHROW(check(mask, tokens));
      mask.given[0].*bound = past;
      require_refused(mask, "band_mask");
      CHECK_NOTHROW(check(band_mask(mask.given), tokens));
    }
  }
}

TEST_CASE("an index finds the bands of a tile and no others") {
  std::vector<std::int64_t> documents;
  for (std::int64_t end = 0; end <= 4000; end += 4) documents.push_back(end);
  const BandIndex index(bands_of({.documents = documents}));
  std::vector<Band> touching;
  index.touching({400, 8, 1}, {400, 8, 1}, touching);
  CHECK(touching == std::vector<Band>{{400, 404, 400, 404, 0, unbounded}, {404, 408, 404, 408, 0, unbounded}});
  CHECK(index.reaching({400, 8, 1}).size() == 2);
  CHECK(index.pairs({400, 8, 1}, {400, 8, 1}) == 20);
  CHECK(index.any({400, 8, 1}, {404, 4, 1}));
  CHECK_FALSE(index.any({400, 8, 1}, {408, 4, 1}));
  CHECK(index.pairs({-8, 8, 1}, {0, 4000, 1}) == 0);
  CHECK(index.pairs({0, 0, 1}, {0, 4000, 1}) == 0);
}

TEST_CASE("an index of hundreds of bands of any shape finds what a look at all of them finds") {
  INFO("seed " << test::seed());
  test::Random random(test::seed());
  for (const int count : {15, 16, 17, 256, 257, 700}) {
    std::vector<Band> bands = {{0, 3000, 0, 5, 0, unbounded}};  // below the root of a tree
    for (int i = 1; i < count; ++i) {
      const std::int64_t q = random.between(0, 2900), k = random.one_in(2) ? q : random.between(5, 2900);
      bands.push_back(
          {q, q + random.between(0, 40), k, k + random.between(0, 40), random.one_in(2) ? 0 : -unbounded, unbounded});
    }
    const BandIndex index(bands);
    for (int n = 0; n < 60; ++n) {
      const Run queries{random.between(0, 2900), random.between(0, 30), random.between(1, 4)};
      const Run keys{random.between(0, 2900), random.between(0, 30), random.between(1, 4)};
      std::vector<Band> touching, expected;
      std::int64_t pairs = 0;
      for (const Band& band : index.bands()) {
        pairs += visible_pairs(band, queries, keys);
        if (touches(band, queries, keys)) expected.push_back(band);
      }
      index.touching(queries, keys, touching);
      REQUIRE(touching == expected);
      REQUIRE(index.pairs(queries, keys) == pairs);
      REQUIRE(index.computed_pairs(queries, keys, 1) == pairs);
      REQUIRE(index.any(queries, keys) == !expected.empty());
      const std::vector<Band> reaching = index.reaching(queries);
      for (const Band& band : expected) REQUIRE(std::count(reaching.begin(), reaching.end(), band) > 0);
    }
  }
}

TEST_CASE("a block of queries meets the keys that one of them sees") {
  Mask mask = causal_mask();
  mask.left = 20;
  for (const Mask& each : {causal_mask(), full_mask(), mask, Mask{.documents = {0, 7, 30, 64}}}) {
    const BandIndex index(bands_of(each));
    for (const Run queries : {Run{0, 64, 1}, Run{3, 21, 2}, Run{32, 32, 1}}) {
      for (const Run keys : {Run{0, 64, 1}, Run{1, 30, 2}, Run{0, 32, 1}}) {
        CHECK(index.computed_pairs(queries, keys, 1) == index.pairs(queries, keys));
        CHECK(index.computed_pairs(queries, keys, 8) >= index.pairs(queries, keys));
      }
    }
  }
  const BandIndex causal(bands_of(causal_mask()));
  CHECK(causal.computed_pairs({0, 32, 1}, {0, 32, 1}, 16) == 16 * 16 + 16 * 32);
  CHECK(causal.computed_pairs({0, 20, 1}, {0, 32, 1}, 16) == 16 * 16 + 16 * 32);
  CHECK(causal.computed_pairs({32, 16, 2}, {0, 100, 1}, 8) == 8 * 47 + 8 * 63);
  const BandIndex window(bands_of(mask));
  CHECK(window.computed_pairs({0, 64, 1}, {0, 64, 1}, 16) == 16 * (16 + 32 + 36 + 36));
  // Two documents in one block are two visits.
  CHECK(BandIndex(bands_of({.documents = {0, 4, 16}})).computed_pairs({0, 16, 1}, {0, 16, 1}, 16) == 16 * 4 + 16 * 12);
}
