#pragma once
/// Masks for tests: their definition, word by word, and random ones.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "distattn/mask.hpp"
#include "support/random.hpp"

namespace distattn::test {

/// The definition (docs/mathematics.md) for options; for explicit bands, whether exactly one holds the pair.
inline bool visible(const Mask& mask, std::int64_t q, std::int64_t k) {
  if (mask.explicit_bands)
    return std::count_if(mask.given.begin(), mask.given.end(), [&](const Band& band) { return band.holds(q, k); }) == 1;
  if (mask.causal && k > q) return false;
  const bool near = (mask.left < 0 || q - k <= mask.left) && (mask.right < 0 || k - q <= mask.right);
  if (!near && k >= mask.sinks) return false;
  if (mask.documents.empty()) return true;
  for (std::size_t d = 0; d + 1 < mask.documents.size(); ++d)
    if (mask.documents[d] <= q && q < mask.documents[d + 1]) return mask.documents[d] <= k && k < mask.documents[d + 1];
  return false;
}

/// Cumulative ends of random documents, some of them empty.
inline std::vector<std::int64_t> random_documents(Random& random, std::int64_t tokens) {
  std::vector<std::int64_t> ends{0, tokens};
  for (std::int64_t n = random.between(0, 6); n > 0; --n) ends.push_back(random.between(0, tokens));
  std::sort(ends.begin(), ends.end());
  return ends;
}

inline Band random_band(Random& random, std::int64_t tokens) {
  Band band;
  const auto bounds = [&](std::int64_t& from, std::int64_t& to, std::int64_t least) {
    if (!random.one_in(4)) from = random.between(least, tokens);
    if (!random.one_in(4)) to = random.between(least, tokens);
    if (from > to && !random.one_in(8)) std::swap(from, to);
  };
  bounds(band.q0, band.q1, -3);
  bounds(band.k0, band.k1, -3);
  bounds(band.lo, band.hi, -tokens);
  return band;
}

/// Random bands, but those that share a pair with an earlier one.
inline std::vector<Band> random_disjoint_bands(Random& random, std::int64_t tokens) {
  std::vector<Band> bands;
  for (std::int64_t n = random.between(0, 8); n > 0; --n) {
    bands.push_back(random_band(random, tokens));
    if (overlapping_bands(bands).first >= 0) bands.pop_back();
  }
  return bands;
}

inline Mask random_mask(Random& random, std::int64_t tokens) {
  switch (random.between(0, 5)) {
    case 0:
      return prefix_mask(tokens, random.between(0, tokens));
    case 1:
      return block_causal_mask(tokens, random.between(1, tokens));
    case 2:
      return band_mask(random_disjoint_bands(random, tokens));
    default:
      break;
  }
  Mask mask;
  mask.causal = !random.one_in(3);
  if (random.one_in(2)) mask.left = random.between(0, tokens);
  if (random.one_in(3)) mask.right = random.between(0, tokens);
  if (random.one_in(3)) mask.sinks = random.between(0, 9);
  if (random.one_in(3)) mask.documents = random_documents(random, tokens);
  return mask;
}

}  // namespace distattn::test
