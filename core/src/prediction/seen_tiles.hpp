#pragma once
/// What predictions ask of tiles, looked up where many schedules of one layout ask the same.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "distattn/layout.hpp"

namespace distattn {

/// As Tiles has it, for one head.
struct SeenTile {
  std::int64_t pairs = 0, computed_pairs = 0;
  BandIndex::Reach reach;
};

/// Tiles as kernels see them that take `block` queries at a time. Safe to share between threads once made.
class SeenTiles {
 public:
  /// `tiles` outlive this.
  SeenTiles(const Tiles& tiles, int block) : tiles_(tiles), block_(block) {}

  /// Counts all live tiles now, so that from here on they are looked up, unless there are too many to keep.
  void remember();

  const Tiles& tiles() const { return tiles_; }
  SeenTile of(SegmentId query, SegmentId key) const {
    return seen_.empty() ? count(query, key) : seen_[at(query, key)];
  }
  std::int64_t pairs(SegmentId query, SegmentId key) const {
    return seen_.empty() ? tiles_.pairs(query, key) : seen_[at(query, key)].pairs;
  }

 private:
  SeenTile count(SegmentId query, SegmentId key) const {
    return {tiles_.pairs(query, key), tiles_.computed_pairs(query, key, block_), tiles_.reach(query, key)};
  }
  std::size_t at(SegmentId query, SegmentId key) const {
    return index(query) * tiles_.sharding().keys.size() + index(key);
  }

  const Tiles& tiles_;
  int block_;
  std::vector<SeenTile> seen_;  // of all tiles, or empty
};

}  // namespace distattn
