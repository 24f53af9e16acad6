#pragma once
/// Tiles of keys and values on their way into shared memory.

#include "kernels/cuda/block_place.cuh"
#include "kernels/cuda/column_part.cuh"
#include "kernels/cuda/fragments.cuh"

namespace distattn::kernels::cuda {

/// Of the head in [batch][key heads] that the block's query head reads.
__device__ __forceinline__ std::uint32_t key_plane(const AttendParams& p, const BlockPlace& place) {
  return static_cast<std::uint32_t>(place.batch * p.heads.kv_count + p.heads.kv_of(place.head));
}

/// Starts to copy the keys of a tile.
template <class Shape>
__device__ __forceinline__ void copy_keys(std::uint32_t into, const AttendParams& p, const TileCursor& tile,
                                          std::uint32_t plane) {
  const KeySegment& key = p.keys[tile.other];
  const auto* const k = static_cast<const typename Shape::Element*>(key.k) + plane * key.run.count * p.head_dim;
  copy_tile<Shape::tile.columns, Shape::head_dim, Shape::threads>(into, k, tile.column, key.run.count, p.head_dim);
}

/// The same of `columns` of its values.
template <class Shape>
__device__ __forceinline__ void copy_values(std::uint32_t into, const AttendParams& p, const TileCursor& tile,
                                            std::uint32_t plane, const ColumnPart& columns) {
  const KeySegment& key = p.keys[tile.other];
  const auto* const v =
      static_cast<const typename Shape::Element*>(key.v) + plane * key.run.count * p.value_stride + columns.first;
  copy_tile<Shape::tile.columns, Shape::value_dim, Shape::threads>(into, v, tile.column, key.run.count, columns.count,
                                                                   p.value_stride);
}

}  // namespace distattn::kernels::cuda
