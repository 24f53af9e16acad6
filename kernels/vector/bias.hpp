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
    return added(score, Bits(position(key)) - load_bits(queries_ + query));
  }
  /// Scores of a query and of the keys from `key` on.
  DISTATTN_INLINE Vector at_keys(Vector score, int query, int key) const {
    return added(score, Bits(position(key) - queries_[query]) + steps_);
  }

 private:
  DISTATTN_INLINE std::int32_t position(int key) const { return first_ + stride_ * key; }
  DISTATTN_INLINE Vector added(Vector score, Bits distance) const {
    return fused(stdx::static_simd_cast<Vector>(distance), Vector(slope_), score);
  }

  float slope_;
  const std::int32_t* queries_;
  std::int32_t first_, stride_;
  Bits steps_;
};

/// Calls body.operator()<Bias>() with the kind of bias that heads have whose slopes begin there. Next to what a map
/// that is not linear costs, adding 0 is nothing: it has no code of its own for scores without a bias.
template <class Map, class Body>
DISTATTN_INLINE void with_bias(const Map&, const double* slopes, Body&& body) {
  if constexpr (Map::is_linear) {
    if (slopes == nullptr) return body.template operator()<NoBias>();
  }
  body.template operator()<LinearBias>();
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
