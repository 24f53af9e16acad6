#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/src/parallel.hpp"
#include "core/src/problem/residue_pairs.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"
#include "distattn/layout.hpp"

namespace distattn {
namespace {

/// Bands of all tiles together that are looked at in a fraction of a second.
constexpr std::size_t quickly_looked_at = 10'000'000;

std::vector<std::vector<SegmentId>> by_owner(std::span<const Segment> segments, int ranks) {
  std::vector<std::vector<SegmentId>> out(index(ranks));
  for (std::size_t i = 0; i < segments.size(); ++i) out[index(segments[i].owner)].push_back(static_cast<SegmentId>(i));
  return out;
}

/// Tiles are looked at one by one when a sharding is made, and many of them in every step of planning.
constexpr std::size_t most_tiles = std::size_t{1} << 28;

Sharding within_reach(Sharding sharding) {
  const std::size_t queries = sharding.queries.size(), keys = sharding.keys.size();
  if (queries == 0 || keys <= most_tiles / queries) return sharding;
  refuse(
      fmt::format("{} ranks make {} segments of queries and {} of keys ({} layouts end at {} pairs of them): choose "
                  "fewer ranks",
                  sharding.ranks, queries, keys, name_of(sharding.layout.kind), most_tiles));
}

/// One bit a tile, rows of queries. From the tiles' pairs where they are counted; else the bands that reach a row are
/// looked up once for the row.
std::vector<std::uint64_t> live_bits(const Sharding& sharding, const BandIndex& mask,
                                     const std::vector<std::int64_t>& pairs) {
  constexpr std::size_t word_bits = 64;
  const std::size_t rows = sharding.queries.size(), keys = sharding.keys.size();
  std::vector<std::uint64_t> bits((rows * keys + word_bits - 1) / word_bits);
  const auto mark = [&](std::size_t i) {
    const Run& query = sharding.queries[i].run;
    const std::vector<Band> bands = mask.reaching(query);
    for (std::size_t j = 0; j < keys; ++j) {
      const std::size_t tile = i * keys + j;
      const auto reaches = [&](const Band& band) { return touches(band, query, sharding.keys[j].run); };
      const bool live = pairs.empty() ? std::any_of(bands.begin(), bands.end(), reaches) : pairs[tile] > 0;
      bits[tile / word_bits] |= std::uint64_t{live} << (tile % word_bits);
    }
  };
  // As many rows as a word has bits end with a word, so that no two threads write to one.
  for_each_in_parallel(static_cast<int>((rows + word_bits - 1) / word_bits), 1, [&](int group) {
    const std::size_t begin = index(group) * word_bits, end = std::min(rows, begin + word_bits);
    for (std::size_t i = begin; i < end; ++i) mark(i);
  });
  return bits;
}

}  // namespace

Tiles::Tiles(Sharding sharding)
    : sharding_(within_reach(std::move(sharding))),
      mask_(bands_of(sharding_.problem.mask)),
      queries_of_(by_owner(sharding_.queries, sharding_.ranks)),
      keys_of_(by_owner(sharding_.keys, sharding_.ranks)),
      pairs_(residue_pairs(sharding_, mask_)),
      live_(live_bits(sharding_, mask_, pairs_)),
      sees_future_(distattn::sees_future(sharding_.problem)),
      estimates_(!pairs_.empty() && pairs_.size() * mask_.bands().size() > quickly_looked_at) {}

BandIndex::Reach Tiles::reach(SegmentId i, SegmentId j) const {
  if (!estimates_) return mask_.reach(query(i).run, key(j).run);
  const std::int64_t visible = pairs(i, j);
  return {std::min(visible, query(i).run.count), std::min(visible, key(j).run.count)};
}

std::int64_t Tiles::computed_pairs(SegmentId i, SegmentId j, int block) const {
  const std::int64_t visible = pairs(i, j);
  if (block == 1) return visible;
  if (!estimates_) return mask_.computed_pairs(query(i).run, key(j).run, block);
  // A visible key is computed for a whole block at least; if many see it, for half a block more than do.
  const std::int64_t of_blocks = block * reach(i, j).keys;
  return std::max(of_blocks, visible + of_blocks / 2);
}

}  // namespace distattn
