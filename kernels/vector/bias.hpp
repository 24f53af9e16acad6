#pragma once
/// What a linear position bias adds to scores: slope · (k − q), of positions in the whole sequence. Both passes add it
/// in one way, so that their scores are the same to the last bit.

#include "distattn/band.hpp"
#include "kernels/vector/tile_shape.hpp"
#include "kernels/vector/visible.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// The slope of a head, and where its queries and keys stand.
struct Positions {
  const double* slope = nullptr;          ///< null: 0
  const std::int32_t* queries = nullptr;  ///< of whole vectors; any of those behind the last
  Run keys;
};

/// Adds nothing.
class NoBias {
 public:
  explicit NoBias(const Positions&) {}
  DISTATTN_INLINE Vector at_queries(Vector score, int, int) const { return score; }
  DISTATTN_INLINE Vector at_keys(Vector score, int, int) const { return score; }
  DISTATTN_INLINE Bits distances(int, int) const { return 0; }
  DISTATTN_INLINE Bits of_next_key(Bits distances) const { return distances; }
  DISTATTN_INLINE Vector added(Vector score, Bits) const { return score; }
};

class LinearBias {
 public:
  explicit LinearBias(const Positions& at)
      : slope_(at.slope == nullptr ? 0.f : static_cast<float>(*at.slope)),
        queries_(at.queries),
        first_(static_cast<std::int32_t>(at.keys.start)),
        stride_(static_cast<std::int32_t>(at.keys.stride)),
        steps_([&](auto lane) { return stride_ * static_cast<std::int32_t>(lane); }) {}

  /// Scores of a key and of the queries from `query`, a multiple of the lanes, on.
  DISTATTN_INLINE Vector at_queries(Vector score, int query, int key) const {
    return added(score, distances(query, key));
  }
  /// Scores of a query and of the keys from `key` on.
  DISTATTN_INLINE Vector at_keys(Vector score, int query, int key) const {
    return added(score, steps_ + position(key) - queries_[query]);
  }
  /// The same for keys that follow each other: how far a key is from these queries, how far the next one is, and a
  /// score with the bias of such a distance.
  DISTATTN_INLINE Bits distances(int query, int key) const { return Bits(position(key)) - load_bits(queries_ + query); }
  DISTATTN_INLINE Bits of_next_key(Bits distances) const { return distances + stride_; }
  DISTATTN_INLINE Vector added(Vector score, Bits distances) const {
    return fused(stdx::static_simd_cast<Vector>(distances), Vector(slope_), score);
  }

 private:
  DISTATTN_INLINE std::int32_t position(int key) const { return first_ + stride_ * key; }

  float slope_;
  const std::int32_t* queries_;
  std::int32_t first_, stride_;
  Bits steps_;
};

/// Calls body.operator()<Bias>() with the kind of bias that heads have whose slopes begin there. Next to what a map
/// that is not linear costs, adding 0 is little: it has no code of its own for scores without a bias, but among
/// products of tiles, which wait for what vectors do.
template <class Map, class Body>
DISTATTN_INLINE void with_bias(const Map&, const double* slopes, Body&& body) {
  if constexpr (Map::is_linear || by_tiles) {
    if (slopes == nullptr) return body.template operator()<NoBias>();
  }
  body.template operator()<LinearBias>();
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
