#include <algorithm>
#include <utility>

#include "distattn/layout.hpp"

namespace distattn {
namespace {

std::vector<std::vector<SegmentId>> by_owner(std::span<const Segment> segments, int ranks) {
  std::vector<std::vector<SegmentId>> out(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < segments.size(); ++i)
    out[static_cast<std::size_t>(segments[i].owner)].push_back(static_cast<SegmentId>(i));
  return out;
}

/// One bit a tile, rows of queries. The bands that reach a row are looked up once for the row.
std::vector<std::uint64_t> live_bits(const Sharding& sharding, const BandIndex& mask) {
  std::vector<std::uint64_t> bits((sharding.queries.size() * sharding.keys.size() + 63) / 64);
  std::size_t bit = 0;
  for (const Segment& query : sharding.queries) {
    const std::span<const Band> bands = mask.reaching(query.run);
    for (const Segment& key : sharding.keys) {
      const bool live =
          std::any_of(bands.begin(), bands.end(), [&](const Band& band) { return touches(band, query.run, key.run); });
      bits[bit / 64] |= std::uint64_t{live} << (bit % 64);
      ++bit;
    }
  }
  return bits;
}

}  // namespace

Tiles::Tiles(Sharding sharding)
    : sharding_(std::move(sharding)),
      mask_(bands_of(sharding_.problem.mask)),
      queries_of_(by_owner(sharding_.queries, sharding_.ranks)),
      keys_of_(by_owner(sharding_.keys, sharding_.ranks)),
      live_(live_bits(sharding_, mask_)),
      looks_ahead_(distattn::looks_ahead(sharding_.problem)) {}

}  // namespace distattn
