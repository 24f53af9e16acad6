#pragma once
/// Segments, layouts and the sharding of a problem over ranks (docs/mathematics.md).

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "distattn/band.hpp"
#include "distattn/index.hpp"
#include "distattn/problem.hpp"
#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// A run of positions owned by one rank: the unit that schedules move and compute.
struct Segment {
  Run run;
  Rank owner = 0;
  friend bool operator==(const Segment&, const Segment&) = default;
};

/// A consecutive run of query heads and every key/value head that one of them uses. Groups may share a
/// key head; its gradient is then summed by the owner in group order.
struct HeadGroup {
  int q0 = 0, q_count = 0;
  int kv0 = 0, kv_count = 0;
  friend bool operator==(const HeadGroup&, const HeadGroup&) = default;
};

enum class LayoutKind : std::uint8_t { block, zigzag, striped, chunked, given };
const char* name_of(LayoutKind kind);
/// Those that are asked for by name, for every schedule on a mesh of ranks.
inline constexpr LayoutKind named_layouts[] = {LayoutKind::block, LayoutKind::zigzag, LayoutKind::striped,
                                               LayoutKind::chunked};

/// A layout by name, or one that is a list of segments.
struct Layout {
  LayoutKind kind = LayoutKind::block;
  int split = 1;  ///< segments of each rank's block (block only)
  /// Given only: of all keys. The queries in a segment of keys have the same owner.
  std::shared_ptr<const std::vector<Segment>> segments = {};
  std::int64_t block = 1;  ///< consecutive tokens that are dealt out together (striped only)

  friend bool operator==(const Layout& a, const Layout& b) {
    const bool same_list = a.segments == b.segments || (a.segments && b.segments && *a.segments == *b.segments);
    return a.kind == b.kind && a.split == b.split && a.block == b.block && same_list;
  }
};
/// "zigzag", "striped:64", "block split 2".
std::string to_string(const Layout& layout);
/// The layout that "block", "zigzag", "striped", "striped:B" or "chunked" stands for; nothing for other words. Throws
/// Error(usage) where B is no number of tokens.
std::optional<Layout> layout_named(std::string_view name);
/// Why blocks of a layout are too many to be planned; empty if they are not.
std::string why_not_dealt(const Layout& layout, const Problem& problem, int ranks);

/// Positions start at 0. `tokens` need not be divisible: cut points are ⌊tokens·k/n⌋, and segments may be empty.
std::vector<Segment> block_segments(std::int64_t tokens, int ranks, int split = 1);
/// Of 2P blocks, rank p owns blocks p and 2P−1−p.
std::vector<Segment> zigzag_segments(std::int64_t tokens, int ranks);
/// Rank p owns every P-th token from p on.
std::vector<Segment> striped_segments(std::int64_t tokens, int ranks);
/// Blocks of `block` tokens are dealt to the ranks in turn (Dealing), so that tokens stay with their ranks, and in
/// their places there, while a sequence grows. The last block may be shorter. Every rank has a segment, and may own
/// nothing.
std::vector<Segment> dealt_segments(std::int64_t tokens, int ranks, std::int64_t block);
/// Cuts the sequence into `per_rank` equal chunks for each rank and deals them out by visible pairs: the heaviest
/// first, each to the rank with the least work that has room. `first` is the position of the first token.
std::vector<Segment> chunked_segments(std::int64_t tokens, int ranks, const BandIndex& mask, int per_rank = 4,
                                      std::int64_t first = 0);
/// Cuts segments that reach across `position` in two, so that attention sinks are sent separately.
std::vector<Segment> cut_segments(const std::vector<Segment>& segments, std::int64_t position);

/// Group u of `groups` holds the u-th consecutive run of query heads; the first (heads mod groups) groups hold one head
/// more. Throws Error(usage) when groups > heads.
std::vector<HeadGroup> head_groups(int heads, int kv_heads, int groups);

/// A problem and which rank owns which of its tokens. Plain data; positions are absolute.
struct Sharding {
  Problem problem;
  int ranks = 1;
  Layout layout;
  std::vector<Segment> queries, keys;
  std::vector<HeadGroup> groups;
};

/// The sharding of a checked problem. Throws Error(usage) as head_groups does, and for given segments as check does.
Sharding shard(const Problem& problem, int ranks, Layout layout, int groups = 1);

/// Throws Error(usage) unless the problem is valid, every position is in one segment, owners are ranks, and every query
/// head is in one group with its key head. What shard() returns always passes.
void check(const Sharding& sharding);

/// How many positions `rank` owns.
std::int64_t owned_tokens(std::span<const Segment> segments, Rank rank);
/// Positions that `rank` owns, in the order of its local tensors: what a data loader reads and RoPE needs.
std::vector<std::int64_t> positions(std::span<const Segment> segments, Rank rank);

/// A sharding with lookups: segments by owner, and which pairs of segments have a visible pair of positions. Immutable
/// after construction; safe to share between threads. Keeps its own copy of the sharding.
class Tiles {
 public:
  explicit Tiles(Sharding sharding);

  const Sharding& sharding() const { return sharding_; }
  const BandIndex& mask() const { return mask_; }
  int ranks() const { return sharding_.ranks; }
  int groups() const { return static_cast<int>(sharding_.groups.size()); }
  const Segment& query(SegmentId i) const { return sharding_.queries[index(i)]; }
  const Segment& key(SegmentId j) const { return sharding_.keys[index(j)]; }
  std::span<const SegmentId> queries_of(Rank rank) const { return queries_of_[index(rank)]; }
  std::span<const SegmentId> keys_of(Rank rank) const { return keys_of_[index(rank)]; }

  /// Whether the tile (i, j) has a visible pair. O(1).
  bool live(SegmentId i, SegmentId j) const {
    const std::size_t bit = index(i) * sharding_.keys.size() + index(j);
    return (live_[bit / 64] >> (bit % 64) & 1u) != 0;
  }
  /// Number of visible pairs of the tile (i, j), for one head.
  std::int64_t pairs(SegmentId i, SegmentId j) const {
    if (!pairs_.empty()) return pairs_[index(i) * sharding_.keys.size() + index(j)];
    return mask_.pairs(query(i).run, key(j).run);
  }
  /// BandIndex::reach() and computed_pairs() for the tile (i, j). With strided segments and tens of thousands of
  /// documents, where every tile touches all of them, they are estimated from the pair count, because predictions query
  /// every tile: query and key counts are then upper bounds, and the sum of computed pairs over all tiles is within a
  /// factor of two.
  BandIndex::Reach reach(SegmentId i, SegmentId j) const;
  std::int64_t computed_pairs(SegmentId i, SegmentId j, int block) const;
  /// Whether some query sees a key at a later position.
  bool sees_future() const { return sees_future_; }

 private:
  Sharding sharding_;
  BandIndex mask_;
  std::vector<std::vector<SegmentId>> queries_of_, keys_of_;
  std::vector<std::int64_t> pairs_;  // of all tiles if counting them one by one would be slow, otherwise empty
  std::vector<std::uint64_t> live_;
  bool sees_future_ = false, estimates_ = false;
};

}  // namespace distattn
#pragma GCC visibility pop
