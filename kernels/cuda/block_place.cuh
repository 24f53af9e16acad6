#pragma once
/// Which block, head and batch a thread block computes, and the tiles that it visits.

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attend_params.hpp"
#include "kernels/cuda/fragments.cuh"
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

/// Walks the tiles of a block's visits, whose number the caller counts, as a warp does that must not wait for loads:
/// each lane has a word of the visit and one of the next, which is loaded while the tiles of the visit are walked.
class WarpTileCursor {
 public:
  int column, end;
  bool is_cut;

  __device__ __forceinline__ WarpTileCursor(const Visit* visits, const Block& block)
      : visit_(block.first_visit), last_(block.last_visit - 1), next_(load(visits, visit_)) {
    begin_visit();
    load_next(visits);
  }
  __device__ __forceinline__ void advance(const Visit* visits, int columns) {
    column += columns;
    if (column >= end) begin_visit();
    load_next(visits);
  }
  __device__ __forceinline__ int other_segment() const { return word(0); }
  __device__ __forceinline__ int second_cut() const { return word(3) + 1; }
  __device__ __forceinline__ int last_cut() const { return word(4); }
  __device__ __forceinline__ Cut first_cut() const { return {word(5), word(6), word(7), word(8), word(9), word(10)}; }

 private:
  static constexpr int words = sizeof(Visit) / sizeof(std::int32_t);
  static_assert(words == 11 && offsetof(Visit, first) == 5 * sizeof(std::int32_t));

  __device__ __forceinline__ static int load(const Visit* visits, int visit) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return prim::load_global(reinterpret_cast<const std::int32_t*>(visits + visit) + (lane < words ? lane : 0));
  }
  __device__ __forceinline__ int word(int which) const { return __shfl_sync(whole_warp, now_, which); }
  __device__ __forceinline__ void begin_visit() {
    now_ = next_;
    if (visit_ < last_) ++visit_;
    column = word(1);
    end = word(2);
    is_cut = word(3) != word(4);
  }
  /// In each tile, for a load in a branch would be waited for at the branch's end.
  __device__ __forceinline__ void load_next(const Visit* visits) { next_ = load(visits, visit_); }

  int visit_;  ///< the next
  int last_;
  int now_, next_;
};

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
