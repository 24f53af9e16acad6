#pragma once
/// Bands: what every mask is inside (docs/mathematics.md), on affine runs of positions. Host and device code.

#include <cstdint>

#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// An affine run of positions: start + stride·i for 0 ≤ i < count. stride ≥ 1.
struct Run {
  std::int64_t start = 0, count = 0, stride = 1;

  DISTATTN_HOST_DEVICE constexpr std::int64_t at(std::int64_t i) const { return start + stride * i; }
  friend bool operator==(const Run&, const Run&) = default;
};

/// Larger than any position or difference of positions, small enough that sums of a few do not overflow.
inline constexpr std::int64_t unbounded = std::int64_t{1} << 60;

/// The pairs with q0 ≤ q < q1, k0 ≤ k < k1 and lo ≤ q − k ≤ hi. A mask is a set of disjoint bands.
struct Band {
  std::int64_t q0 = -unbounded, q1 = unbounded;
  std::int64_t k0 = -unbounded, k1 = unbounded;
  std::int64_t lo = -unbounded, hi = unbounded;

  DISTATTN_HOST_DEVICE constexpr bool holds(std::int64_t q, std::int64_t k) const {
    return q0 <= q && q < q1 && k0 <= k && k < k1 && lo <= q - k && q - k <= hi;
  }
  friend bool operator==(const Band&, const Band&) = default;
};

/// Half-open range of indices; empty when end ≤ begin.
struct IndexRange {
  std::int64_t begin = 0, end = 0;
  DISTATTN_HOST_DEVICE constexpr bool empty() const { return end <= begin; }
};

/// a / b. Processors of before 2020 divide numbers of 64 bits in three times as long as those of 32, which most are.
DISTATTN_HOST_DEVICE constexpr std::int64_t quotient(std::int64_t a, std::int64_t b) {
#if !defined(DISTATTN_DEVICE_CODE)
  if (((a | b) >> 32) == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
#endif
  return a / b;
}
DISTATTN_HOST_DEVICE constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  const std::int64_t q = quotient(a, b);
  return q - (q * b != a && (a < 0) != (b < 0) ? 1 : 0);
}
DISTATTN_HOST_DEVICE constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  const std::int64_t q = quotient(a, b);
  return q + (q * b != a && (a < 0) == (b < 0) ? 1 : 0);
}

/// Indices of `run` whose positions lie in [begin, end).
DISTATTN_HOST_DEVICE constexpr IndexRange indices_within(const Run& run, std::int64_t begin, std::int64_t end) {
  std::int64_t first = run.stride == 1 ? begin - run.start : ceil_div(begin - run.start, run.stride);
  std::int64_t last = run.stride == 1 ? end - run.start : ceil_div(end - run.start, run.stride);
  if (first < 0) first = 0;
  if (last > run.count) last = run.count;
  return {first, last < first ? first : last};
}

/// Rows of `queries` that the band reaches at all.
DISTATTN_HOST_DEVICE constexpr IndexRange band_rows(const Band& band, const Run& queries) {
  return indices_within(queries, band.q0, band.q1);
}

/// Keys of `keys` that the query at position `q` sees through the band: always one range (docs/mathematics.md).
/// Both ends never fall as q grows.
DISTATTN_HOST_DEVICE constexpr IndexRange band_keys(const Band& band, std::int64_t q, const Run& keys) {
  std::int64_t begin = q - band.hi, end = q - band.lo + 1;
  if (begin < band.k0) begin = band.k0;
  if (end > band.k1) end = band.k1;
  if (q < band.q0 || q >= band.q1 || end <= begin) return {0, 0};
  return indices_within(keys, begin, end);
}

/// How much of a tile a band covers.
enum class Coverage : std::uint8_t { skip, partial, full };

/// Classifies queries × keys for one band by its corners. `full` is exact; a tile that the band slips through between
/// two positions or past a corner may be called partial (touches() is exact).
DISTATTN_HOST_DEVICE constexpr Coverage classify(const Band& band, const Run& queries, const Run& keys) {
  if (queries.count <= 0 || keys.count <= 0) return Coverage::skip;
  const std::int64_t q_first = queries.at(0), q_last = queries.at(queries.count - 1);
  const std::int64_t k_first = keys.at(0), k_last = keys.at(keys.count - 1);
  if (q_last < band.q0 || q_first >= band.q1 || k_last < band.k0 || k_first >= band.k1) return Coverage::skip;
  if (q_last - k_first < band.lo || q_first - k_last > band.hi) return Coverage::skip;
  const bool inside = band.q0 <= q_first && q_last < band.q1 && band.k0 <= k_first && k_last < band.k1;
  return inside && q_first - k_last >= band.lo && q_last - k_first <= band.hi ? Coverage::full : Coverage::partial;
}

/// Whether queries × keys has a visible pair: visible_pairs() > 0, mostly without its cost.
bool touches(const Band& band, const Run& queries, const Run& keys);

/// Number of visible pairs of queries × keys, in closed form (cost grows with the logarithm of the strides at most).
std::int64_t visible_pairs(const Band& band, const Run& queries, const Run& keys);

}  // namespace distattn
#pragma GCC visibility pop
