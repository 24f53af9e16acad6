#pragma once
/// Which block, head and batch a thread block computes, and the tiles that it visits.

#include <cstdint>

#include "kernels/cuda/attend_params.hpp"
#include "kernels/cuda/primitives.cuh"

namespace distattn::kernels::cuda {

/// Heads run fastest: blocks that start together share a key head's tiles in cache.
struct BlockPlace {
  Block block;
  int batch, head;

  __device__ __forceinline__ BlockPlace(const AttendParams& p, int heads)
      : BlockPlace(p, heads, static_cast<int>(blockIdx.x)) {}
  __device__ __forceinline__ BlockPlace(const AttendParams& p, int heads, int index) {
    head = index % heads;
    batch = index / heads % p.batch;
    block = p.blocks[index / heads / p.batch];
  }
};

/// The places that a thread block computes one after the other: one, where there are as many blocks. Rounds go to and
/// fro over the blocks: who has the longest of one has the shortest of the next.
struct PlaceCursor {
  int count, round = 0;

  __device__ __forceinline__ PlaceCursor(const AttendParams& p, int heads) : count(p.block_count * p.batch * heads) {}
  __device__ __forceinline__ int index() const {
    const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
  }
  __device__ __forceinline__ bool valid() const { return index() < count; }
  __device__ __forceinline__ void advance() { ++round; }
};

/// First of the rows of one head in [batch][heads][rows].
__device__ __forceinline__ std::int64_t first_row(int batch, int heads, int head, const Run& run) {
  return (batch * heads + head) * run.count;
}

/// Walks the tiles of a block's visits once for each query head of its key head.
struct HeadTileCursor {
  TileCursor tile;
  int head, last_head;

  __device__ __forceinline__ HeadTileCursor(const AttendParams& p, const BlockPlace& place)
      : tile(p.visits, place.block) {
    const int first = (p.heads.kv0 + place.head) * p.heads.per_kv - p.heads.q0, last = first + p.heads.per_kv;
    head = first > 0 ? first : 0;
    last_head = last < p.heads.q_count ? last : p.heads.q_count;
  }
  __device__ __forceinline__ bool valid() const { return tile.valid() && head < last_head; }
  __device__ __forceinline__ void advance(const AttendParams& p, const Block& block, int columns) {
    tile.advance(p.visits, columns);
    if (tile.valid()) return;
    ++head;
    tile = TileCursor(p.visits, block);
  }
};

}  // namespace distattn::kernels::cuda
