#include "distattn/mask.hpp"

#include "distattn/band.hpp"
#include "fuzz/targets.hpp"

namespace distattn::fuzz {
namespace {

/// Pair by pair.
std::int64_t pairs_of(std::span<const Band> bands, const Run& queries, const Run& keys) {
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < queries.count; ++i) {
    for (std::int64_t j = 0; j < keys.count; ++j) {
      for (const Band& band : bands) pairs += band.holds(queries.at(i), keys.at(j)) ? 1 : 0;
    }
  }
  return pairs;
}

}  // namespace

/// Bands that are accepted share no pair, and count as their definition says.
void read_mask(Bytes bytes) {
  const auto mask = accepted([&] { return mask_from_json(text_of(bytes), "a mask"); });
  if (!mask) return;
  const BandIndex index(bands_of(*mask));
  const Run queries{3, 9, 2}, keys{0, 16, 1};
  const std::int64_t pairs = pairs_of(index.bands(), queries, keys);
  require(index.pairs(queries, keys) == pairs, "pairs are counted right");
  require(pairs <= queries.count * keys.count, "no pair is in two bands");
}

}  // namespace distattn::fuzz
