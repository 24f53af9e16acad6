#pragma once
/// A tile of keys and values on its way into shared memory, twice: one is read while the next arrives.

#include "kernels/cuda/block_place.cuh"
#include "kernels/cuda/fragments.cuh"

namespace distattn::kernels::cuda {

template <class Shape>
struct KeyStage {
  static constexpr int k_bytes = SharedTile<Shape::head_dim>::bytes(Shape::tile.columns);
  static constexpr int v_bytes = SharedTile<Shape::value_dim>::bytes(Shape::tile.columns);
  static constexpr int bytes = k_bytes + v_bytes;

  std::uint32_t k, v;

  /// Where the block's tile of that number goes.
  __device__ __forceinline__ KeyStage(std::uint32_t stages, int tile)
      : k(stages + static_cast<std::uint32_t>(tile % 2 * bytes)), v(k + k_bytes) {}

  __device__ __forceinline__ void copy(const AttendParams& p, const TileCursor& tile, const BlockPlace& place) const {
    using Element = typename Shape::Element;
    const KeySegment& key = p.keys[p.visits[tile.visit].other];
    const std::int64_t row = first_row(place.batch, p.heads.kv_count, p.heads.kv_of(place.head), key.run);
    copy_tile<Shape::tile.columns, Shape::head_dim, Shape::threads>(
        k, static_cast<const Element*>(key.k) + row * p.head_dim, tile.column, key.run.count, p.head_dim);
    copy_tile<Shape::tile.columns, Shape::value_dim, Shape::threads>(
        v, static_cast<const Element*>(key.v) + row * p.value_dim, tile.column, key.run.count, p.value_dim);
  }
};

}  // namespace distattn::kernels::cuda
