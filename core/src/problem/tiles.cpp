#include <algorithm>
#include <utility>

#include "core/src/problem/residue_pairs.hpp"
#include "distattn/layout.hpp"

namespace distattn {
namespace {

/// Bands of all tiles together that are looked at in a fraction of a second.
constexpr std::size_t quickly_looked_at = 10'000'000;

std::vector<std::vector<SegmentId>> by_owner(std::span<const Segment> segments, int ranks) {
  std::vector<std::vector<SegmentId>> out(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < segments.size(); ++i)
    out[static_cast<std::size_t>(segments[i].owner)].push_back(static_cast<SegmentId>(i));
  return out;
}

/// One bit a tile, rows of queries.
class LiveBits {
 public:
  explicit LiveBits(std::size_t tiles) : bits_((tiles + 63) / 64) {}
  void push(bool live) {
    bits_[next_ / 64] |= std::uint64_t{live} << (next_ % 64);
    ++next_;
  }
  std::vector<std::uint64_t> take() { return std::move(bits_); }

 private:
  std::vector<std::uint64_t> bits_;
  std::size_t next_ = 0;
};

/// From the tiles' pairs where they are counted; else the bands that reach a row are looked up once for the row.
std::vector<std::uint64_t> live_bits(const Sharding& sharding, const BandIndex& mask,
                                     const std::vector<std::int64_t>& pairs) {
  LiveBits bits(sharding.queries.size() * sharding.keys.size());
  for (const std::int64_t count : pairs) bits.push(count > 0);
  if (!pairs.empty()) return bits.take();
  for (const Segment& query : sharding.queries) {
    const std::span<const Band> bands = mask.reaching(query.run);
    for (const Segment& key : sharding.keys) {
      bits.push(
          std::any_of(bands.begin(), bands.end(), [&](const Band& band) { return touches(band, query.run, key.run); }));
    }
  }
  return bits.take();
}

}  // namespace

Tiles::Tiles(Sharding sharding)
    : sharding_(std::move(sharding)),
      mask_(bands_of(sharding_.problem.mask)),
      queries_of_(by_owner(sharding_.queries, sharding_.ranks)),
      keys_of_(by_owner(sharding_.keys, sharding_.ranks)),
      pairs_(residue_pairs(sharding_, mask_)),
      live_(live_bits(sharding_, mask_, pairs_)),
      looks_ahead_(distattn::looks_ahead(sharding_.problem)),
      estimates_(!pairs_.empty() && pairs_.size() * mask_.bands().size() > quickly_looked_at) {}

BandIndex::Reach Tiles::reach(SegmentId i, SegmentId j) const {
  if (!estimates_) return mask_.reach(query(i).run, key(j).run);
  const std::int64_t visible = pairs(i, j);
  return {std::min(visible, query(i).run.count), std::min(visible, key(j).run.count)};
}

std::int64_t Tiles::met_pairs(SegmentId i, SegmentId j, int block) const {
  const std::int64_t visible = pairs(i, j);
  if (block == 1) return visible;
  if (!estimates_) return mask_.met_pairs(query(i).run, key(j).run, block);
  // A key in sight is met by a whole block at least; where many see it, by half a block more than do.
  const std::int64_t of_blocks = block * reach(i, j).keys;
  return std::max(of_blocks, visible + of_blocks / 2);
}

}  // namespace distattn
