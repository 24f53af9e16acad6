#include "distattn/band.hpp"

#include "catch.hpp"

using namespace distattn;

namespace {

std::int64_t count_pairs(const Band& band, const Run& queries, const Run& keys) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < queries.count; ++i)
    for (std::int64_t j = 0; j < keys.count; ++j) count += band.holds(queries.at(i), keys.at(j)) ? 1 : 0;
  return count;
}

const Band causal{.lo = 0};

}  // namespace

TEST_CASE("division rounds towards minus and plus infinity") {
  CHECK(floor_div(7, 2) == 3);
  CHECK(floor_div(-7, 2) == -4);
  CHECK(floor_div(-8, 2) == -4);
  CHECK(ceil_div(7, 2) == 4);
  CHECK(ceil_div(-7, 2) == -3);
  CHECK(ceil_div(8, 2) == 4);
}

TEST_CASE("the indices of a run within bounds") {
  const Run run{-5, 4, 3};  // -5 -2 1 4
  CHECK(indices_within(run, -2, 4).begin == 1);
  CHECK(indices_within(run, -2, 4).end == 3);
  CHECK(indices_within(run, -unbounded, unbounded).begin == 0);
  CHECK(indices_within(run, -unbounded, unbounded).end == 4);
  CHECK(indices_within(run, 2, 4).empty());
  CHECK(indices_within(run, 5, 100).empty());
}

TEST_CASE("causal pairs of known tiles") {
  CHECK(visible_pairs(causal, {0, 4, 1}, {0, 4, 1}) == 10);
  CHECK(visible_pairs(causal, {4, 4, 1}, {0, 4, 1}) == 16);
  CHECK(visible_pairs(causal, {0, 4, 1}, {4, 4, 1}) == 0);
  CHECK(visible_pairs(causal, {0, 3, 2}, {1, 3, 2}) == 3);
  CHECK(visible_pairs(causal, {-3, 3, 1}, {0, 8, 1}) == 0);
  CHECK(visible_pairs(causal, {0, 0, 1}, {0, 8, 1}) == 0);
}

TEST_CASE("a sequence of 2^31 tokens is counted without overflow") {
  const std::int64_t n = std::int64_t{1} << 31;
  CHECK(visible_pairs(causal, {0, n, 1}, {0, n, 1}) == n / 2 * (n + 1));
  CHECK(visible_pairs(Band{}, {0, n, 1}, {0, n, 1}) == n * n);
  CHECK(visible_pairs(causal, {0, n / 4096, 4096}, {1, n / 4096, 4096}) == (n / 4096) * (n / 4096 - 1) / 2);
}

TEST_CASE("a band that slips through a tile touches nothing") {
  const Band between{.lo = 1, .hi = 3};
  CHECK_FALSE(touches(between, {0, 8, 4}, {0, 8, 4}));
  CHECK(touches(between, {1, 8, 4}, {0, 8, 4}));
  const Band corner{.q0 = 0, .q1 = 2, .k0 = 5, .k1 = 10, .lo = 0};
  CHECK_FALSE(touches(corner, {0, 10, 1}, {0, 10, 1}));
  const Band thin{.q0 = 3, .q1 = 4};
  CHECK_FALSE(touches(thin, {0, 4, 2}, {0, 4, 2}));
  CHECK(classify(thin, {0, 4, 2}, {0, 4, 2}) == Coverage::partial);
}

TEST_CASE("counts, coverage and touch agree with every pair of small runs") {
  const Run runs[] = {{0, 5, 1}, {-4, 6, 1}, {3, 4, 2}, {-3, 3, 5}, {1, 1, 7}, {2, 0, 1}};
  for (const Run& queries : runs)
    for (const Run& keys : runs)
      for (std::int64_t lo = -6; lo <= 6; lo += 3)
        for (std::int64_t hi = lo - 1; hi <= lo + 8; hi += 3)
          for (const std::int64_t cut : {-2, 0, 3}) {
            const Band band{.q0 = cut, .q1 = cut + 6, .k0 = -cut, .k1 = 7, .lo = lo, .hi = hi};
            const std::int64_t count = count_pairs(band, queries, keys);
            REQUIRE(visible_pairs(band, queries, keys) == count);
            REQUIRE(touches(band, queries, keys) == (count > 0));
            const Coverage coverage = classify(band, queries, keys);
            if (coverage == Coverage::skip) REQUIRE(count == 0);
            REQUIRE((coverage == Coverage::full) == (count > 0 && count == queries.count * keys.count));
          }
}

TEST_CASE("the keys of a query are one range whose ends never fall") {
  const Band band{.q0 = 1, .q1 = 12, .k0 = 2, .k1 = 9, .lo = -1, .hi = 4};
  const Run keys{0, 6, 2};
  IndexRange before;
  for (std::int64_t q = 0; q < 14; ++q) {
    const IndexRange range = band_keys(band, q, keys);
    for (std::int64_t j = 0; j < keys.count; ++j)
      REQUIRE((range.begin <= j && j < range.end) == band.holds(q, keys.at(j)));
    if (range.empty()) continue;
    REQUIRE(range.begin >= before.begin);
    REQUIRE(range.end >= before.end);
    before = range;
  }
}
