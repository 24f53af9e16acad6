/// Random bands, masks and runs against brute force over every pair.

#include "catch.hpp"
#include "support/masks.hpp"

using namespace distattn;
using distattn::test::Random;

namespace {

Run random_run(Random& random) {
  return {random.between(-20, 40), random.between(0, 12), random.one_in(2) ? 1 : random.between(2, 9)};
}

template <class Visible>
std::int64_t count_pairs(const Run& queries, const Run& keys, Visible visible) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < queries.count; ++i)
    for (std::int64_t j = 0; j < keys.count; ++j) count += visible(queries.at(i), keys.at(j)) ? 1 : 0;
  return count;
}

BandIndex::Reach reach_by_force(const BandIndex& index, const Run& queries, const Run& keys) {
  BandIndex::Reach reach;
  for (std::int64_t i = 0; i < queries.count; ++i) reach.queries += index.any({queries.at(i), 1, 1}, keys) ? 1 : 0;
  for (std::int64_t j = 0; j < keys.count; ++j) reach.keys += index.any(queries, {keys.at(j), 1, 1}) ? 1 : 0;
  return reach;
}

/// Whether two of the bands hold the same pair, among the positions that small bounds can tell apart.
bool overlap_by_force(const std::vector<Band>& bands, std::int64_t tokens) {
  for (std::int64_t q = -2 * tokens; q <= 3 * tokens; ++q)
    for (std::int64_t k = -2 * tokens; k <= 3 * tokens; ++k)
      if (std::count_if(bands.begin(), bands.end(), [&](const Band& band) { return band.holds(q, k); }) > 1)
        return true;
  return false;
}

}  // namespace

TEST_CASE("a band's pairs, coverage and keys on random runs") {
  INFO("seed " << test::seed());
  Random random(test::seed());
  for (int n = 0; n < 50000; ++n) {
    const Band band = test::random_band(random, 40);
    const Run queries = random_run(random), keys = random_run(random);
    const std::int64_t count = count_pairs(queries, keys, [&](auto q, auto k) { return band.holds(q, k); });
    std::int64_t by_rows = 0;
    for (std::int64_t i = 0; i < queries.count; ++i) {
      const IndexRange range = band_keys(band, queries.at(i), keys);
      if (!range.empty()) by_rows += range.end - range.begin;
    }
    const Coverage coverage = classify(band, queries, keys);
    INFO("case " << n);
    REQUIRE(visible_pairs(band, queries, keys) == count);
    REQUIRE(by_rows == count);
    REQUIRE(touches(band, queries, keys) == (count > 0));
    REQUIRE((coverage == Coverage::full) == (count > 0 && count == queries.count * keys.count));
    REQUIRE((coverage != Coverage::skip || count == 0));
  }
}

TEST_CASE("a mask's bands are disjoint and say what the mask says") {
  INFO("seed " << test::seed());
  Random random(test::seed());
  for (int n = 0; n < 400; ++n) {
    const std::int64_t tokens = random.between(1, 40);
    const Mask mask = test::random_mask(random, tokens);
    check(mask, tokens);
    const std::vector<Band> bands = bands_of(mask);
    INFO("case " << n);
    REQUIRE(overlapping_bands(bands).first == -1);
    REQUIRE(std::is_sorted(bands.begin(), bands.end(), [](const Band& a, const Band& b) { return a.q0 < b.q0; }));
    for (std::int64_t q = -5; q < tokens; ++q)
      for (std::int64_t k = 0; k < tokens; ++k) {
        const auto held = std::count_if(bands.begin(), bands.end(), [&](const Band& band) { return band.holds(q, k); });
        if (held != (test::visible(mask, q, k) ? 1 : 0))
          FAIL("q " << q << " k " << k << " lies in " << held << " bands");
      }
  }
}

TEST_CASE("an index of bands counts and finds what a look at all of them does") {
  INFO("seed " << test::seed());
  Random random(test::seed());
  for (int n = 0; n < 2000; ++n) {
    const BandIndex index(bands_of(test::random_mask(random, 40)));
    const Run queries = random_run(random), keys = random_run(random);
    std::vector<Band> expected, found;
    std::int64_t pairs = 0;
    for (const Band& band : index.bands()) {
      const std::int64_t count = visible_pairs(band, queries, keys);
      if (count > 0) expected.push_back(band);
      pairs += count;
    }
    index.touching(queries, keys, found);
    INFO("case " << n);
    REQUIRE(found == expected);
    REQUIRE(index.pairs(queries, keys) == pairs);
    REQUIRE(index.any(queries, keys) == (pairs > 0));
    const BandIndex::Reach reach = index.reach(queries, keys), exact = reach_by_force(index, queries, keys);
    REQUIRE(reach.queries >= exact.queries);
    REQUIRE(reach.keys >= exact.keys);
    REQUIRE(reach.queries <= queries.count);
    REQUIRE(reach.keys <= keys.count);
    if (expected.size() <= 1 && queries.stride == 1 && keys.stride == 1) {
      REQUIRE(reach.queries == exact.queries);
      REQUIRE(reach.keys == exact.keys);
    }
  }
}

TEST_CASE("overlapping bands are found, and only they") {
  INFO("seed " << test::seed());
  Random random(test::seed());
  int overlaps = 0;
  for (int n = 0; n < 300; ++n) {
    std::vector<Band> bands;
    for (std::int64_t left = random.between(0, 4); left > 0; --left) bands.push_back(test::random_band(random, 8));
    const auto [a, b] = overlapping_bands(bands);
    INFO("case " << n);
    REQUIRE((a >= 0) == overlap_by_force(bands, 8));
    if (a < 0) continue;
    ++overlaps;
    REQUIRE(a < b);
    REQUIRE(overlap_by_force({bands[static_cast<std::size_t>(a)], bands[static_cast<std::size_t>(b)]}, 8));
  }
  REQUIRE(overlaps > 30);
}

TEST_CASE("an overlap is found among bands that have none", "[again]") {
  INFO("seed " << test::seed());
  Random random(test::seed());
  std::size_t most = 0;
  for (int n = 0; n < 100; ++n) {
    std::vector<Band> bands;
    for (int tries = 0; tries < 60; ++tries) {
      Band band = test::random_band(random, 16);
      if (band.hi == unbounded && band.lo > -unbounded)
        band.hi = band.lo + random.between(0, 3);  // narrow, so that many have room
      bands.insert(bands.begin() + random.between(0, std::ssize(bands)), band);
      const auto [a, b] = overlapping_bands(bands);
      INFO("case " << n << " with " << bands.size() << " bands");
      REQUIRE((a >= 0) == overlap_by_force(bands, 16));
      if (a < 0) continue;
      REQUIRE(overlap_by_force({bands[static_cast<std::size_t>(a)], bands[static_cast<std::size_t>(b)]}, 16));
      bands.erase(std::find(bands.begin(), bands.end(), band));
    }
    most = std::max(most, bands.size());
  }
  REQUIRE(most > 8);
}
