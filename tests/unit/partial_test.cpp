#include "distattn/partial.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "catch.hpp"
#include "support/random.hpp"

using namespace distattn;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

double value_of(const SplitLse<float>& lse) { return static_cast<double>(lse.high) + static_cast<double>(lse.low); }

/// A number near `size` that no float holds.
SplitLse<float> near(test::Random& random, double size) {
  const double exact = size + static_cast<double>(random.between(0, 1 << 30)) * 0x1p-28;
  const auto high = static_cast<float>(exact);
  return {high, static_cast<float>(exact - static_cast<double>(high))};
}

double exact_lse(const std::vector<SplitLse<float>>& all) {
  double top = -infinity, sum = 0;
  for (const auto& one : all) top = std::max(top, value_of(one));
  for (const auto& one : all) sum += std::exp(value_of(one) - top);
  return top + std::log(sum);
}

}  // namespace

TEST_CASE("merging split statistics loses nothing with their size", "[partial]") {
  CAPTURE(test::seed());
  test::Random random(test::seed());
  for (const double size : {0.0, 500.0, 570.0, -800.0, 1e4, 1e5, -1e5}) {
    CAPTURE(size);
    std::vector<SplitLse<float>> parts;
    for (int i = 0; i < 64; ++i) parts.push_back(near(random, size));
    const double exact = exact_lse(parts);
    SplitLse<float> ring;
    std::vector<double> weights;  // of each part in the sum, as an output would get them
    for (const auto& part : parts) {
      const auto merged = merge_weights(ring, part);
      for (double& weight : weights) weight *= static_cast<double>(merged.scale_a);
      weights.push_back(static_cast<double>(merged.scale_b));
      ring = merged.lse;
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      CHECK(weights[i] == Approx(std::exp(value_of(parts[i]) - exact)).epsilon(2e-6));
    }
    CHECK(std::fabs(value_of(ring) - exact) < 2e-6);

    std::vector<SplitLse<float>> tree = parts;
    for (; tree.size() > 1; tree.resize(tree.size() / 2)) {
      for (std::size_t i = 0; i < tree.size() / 2; ++i) {
        tree[i] = merge_weights(tree[2 * i], tree[2 * i + 1]).lse;
      }
    }
    CHECK(std::fabs(value_of(tree.front()) - value_of(ring)) < 2e-6);
    CHECK(ring.high == static_cast<float>(value_of(ring)));
  }
}

TEST_CASE("split statistics commute, and have the identity of plain ones", "[partial]") {
  test::Random random(test::seed());
  const SplitLse<float> nothing;
  for (int i = 0; i < 100; ++i) {
    const auto a = near(random, 700), b = near(random, 700 + static_cast<double>(i % 3));
    const auto ab = merge_weights(a, b), ba = merge_weights(b, a);
    CHECK(ab.scale_a == ba.scale_b);
    CHECK(ab.lse.high == ba.lse.high);
    CHECK(ab.lse.low == ba.lse.low);
    const auto kept = merge_weights(a, nothing);
    CHECK(kept.scale_a == 1);
    CHECK(kept.scale_b == 0);
    CHECK(kept.lse.high == a.high);
    CHECK(kept.lse.low == a.low);
  }
  const auto empty = merge_weights(nothing, nothing);
  CHECK(empty.scale_a == 0);
  CHECK(empty.scale_b == 0);
  CHECK(empty.lse.high == -infinity);
  CHECK(empty.lse.low == 0);
}

TEST_CASE("the low part of what is no number is 0, and NaN propagates", "[partial]") {
  const SplitLse<float> one{1, 0}, nan{not_a_number, 0}, top{infinity, 0};
  for (const auto& merged : {merge_weights(nan, one), merge_weights(one, nan)}) {
    CHECK(std::isnan(merged.lse.high));
    CHECK(merged.lse.low == 0);
    CHECK(std::isnan(merged.scale_a));
  }
  CHECK(merge_weights(top, one).lse.high == infinity);
  CHECK(merge_weights(top, one).lse.low == 0);
  const auto far_apart = merge_weights(SplitLse<float>{1e30f, 0}, SplitLse<float>{-1e30f, 0});
  CHECK(far_apart.scale_a == 1);
  CHECK(far_apart.lse.high == 1e30f);
  CHECK(far_apart.lse.low == 0);
}
