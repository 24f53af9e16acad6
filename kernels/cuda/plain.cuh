#pragma once
/// Attention in fp32, as plain as it can be: a warp computes one row of its own side, its lanes 32 columns at a time.

#include "kernels/cuda/block_place.cuh"
#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/general_scores.cuh"

namespace distattn::kernels::cuda {

struct Plain {
  static constexpr int warps = 4, threads = warps * 32;
  static constexpr TileSize tile{warps, 32};
};

template <class Map_, int largest_dim>
struct PlainShape : Plain {
  using Element = float;
  using Map = Map_;  ///< of scores
  static constexpr int head_dim = largest_dim, value_dim = largest_dim, per_lane = largest_dim / 32;
  static constexpr int row_bytes = largest_dim * 4;
  static constexpr int shared_bytes = 2 * warps * row_bytes;  ///< two rows a warp
};

template <class Combine>
__device__ __forceinline__ float over_warp(float value, Combine combine) {
  for (int step = 16; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}

/// A warp brings one row into shared memory, where all of its lanes read it.
__device__ __forceinline__ void share_row(std::uint32_t into, const float* from, int dim) {
  for (int x = static_cast<int>(threadIdx.x) % 32; x < dim; x += 32) {
    prim::store_shared(into + static_cast<std::uint32_t>(x * 4), prim::load_global(from + x));
  }
  __syncwarp();
}

/// In eight interleaved sums. Passes have the two rows in either order, and the same product to the last bit.
__device__ __forceinline__ float dot(std::uint32_t shared, const float* row, int dim) {
  Quad even{}, odd{};
  const auto add = [&](Quad& sums, int x) {
    const Quad a = prim::load_shared<Quad>(shared + static_cast<std::uint32_t>(x * 4));
    const Quad b = prim::load_global(reinterpret_cast<const Quad*>(row + x));
    sums = {fmaf(a.x, b.x, sums.x), fmaf(a.y, b.y, sums.y), fmaf(a.z, b.z, sums.z), fmaf(a.w, b.w, sums.w)};
  };
  for (int x = 0; x < dim; x += 8) {
    add(even, x);
    add(odd, x + 4);
  }
  return ((even.x + odd.x) + (even.y + odd.y)) + ((even.z + odd.z) + (even.w + odd.w));
}

/// A row of results, element lane + 32·c in sums[c].
template <class Shape>
struct LaneRow {
  float sums[Shape::per_lane] = {};

  template <class Visitor>
  __device__ __forceinline__ void for_each(int dim, Visitor visit) {
    DISTATTN_UNROLL
    for (int c = 0; c < Shape::per_lane; ++c) {
      const int x = static_cast<int>(threadIdx.x) % 32 + 32 * c;
      if (x < dim) visit(sums[c], x);
    }
  }
  /// += Σ weight · row over the visible columns; `rows` points to the tile's first of them, `stride` elements from one
  /// to the next, lane j has the weight of column j. A tile is summed by itself: rounding grows with the number of
  /// tiles, not of columns.
  __device__ __forceinline__ void add(float weight, std::uint32_t visible, const float* rows, int dim, int stride) {
    LaneRow tile;
    for (int j = 0; j < 32; ++j) {
      const float factor = __shfl_sync(0xffffffffu, weight, j);
      if ((visible >> j & 1u) == 0) continue;
      tile.for_each(dim, [&](float& sum, int x) {
        sum += factor * prim::load_global(rows + static_cast<std::int64_t>(j) * stride + x);
      });
    }
    DISTATTN_UNROLL
    for (int c = 0; c < Shape::per_lane; ++c) sums[c] += tile.sums[c];
  }
  __device__ __forceinline__ void store(float* into, int dim, float scale, bool carry) {
    for_each(dim, [&](float& sum, int x) {
      const float before = carry ? prim::load_global(into + x) : 0.0f;
      prim::store_global(into + x, before + sum * scale);
    });
  }
};

/// The columns of a tile that a row sees: bit j for the tile's column j.
__device__ __forceinline__ std::uint32_t visible_in(const AttendParams& p, const TileCursor& tile, std::int64_t row) {
  if (!tile.is_cut()) return 0xffffffffu;
  return static_cast<std::uint32_t>(visible_columns(p.cuts + tile.first_cut, tile.last_cut - tile.first_cut,
                                                    static_cast<std::int32_t>(row), tile.column));
}

/// What one warp works on; the row may lie past the end of its segment.
template <class Shape>
struct WarpRow {
  std::int64_t row;
  int lane;
  std::uint32_t shared;  ///< two rows of shared memory

  __device__ __forceinline__ WarpRow(const Block& block, const std::byte* memory) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    row = block.row_begin + warp;
    lane = static_cast<int>(threadIdx.x) % 32;
    shared = prim::shared_address(memory) + static_cast<std::uint32_t>(warp * 2 * Shape::row_bytes);
  }
};

template <class Shape>
__global__ void __launch_bounds__(Plain::threads, 1) plain_attend(const __grid_constant__ AttendParams p) {
  using Map = typename Shape::Map;
  if (prim::any_thread(prim::raised(p.stop))) return;
  DISTATTN_SHARED_MEMORY(memory);
  const BlockPlace place(p, p.heads.q_count);
  const QuerySegment& query = p.queries[place.block.own];
  const WarpRow<Shape> me(place.block, memory);
  if (me.row >= query.run.count) return;
  const std::int64_t row = first_row(place.batch, p.heads.q_count, place.head, query.run) + me.row;
  share_row(me.shared, static_cast<const float*>(query.q) + row * p.head_dim, p.head_dim);

  float* const o_out = query.o + row * p.value_dim;
  LaneRow<Shape> o;
  Split top = query.carry && me.lane == 0 ? load_lse(query, row) : no_score();
  top = {__shfl_sync(0xffffffffu, top.top, 0), __shfl_sync(0xffffffffu, top.rest, 0)};
  float sum = top.top == no_score().top || me.lane != 0 ? 0.0f : 1.0f;
  if (top.top != no_score().top)
    o.for_each(p.value_dim, [&](float& value, int x) { value = prim::load_global(o_out + x); });
  const Map map(p);
  const float unit = map.rising_unit();
  const typename Map::Terms terms(p, place.batch, place.head);
  typename Map::Largest largest;

  for (TileCursor tile(p.visits, place.block); tile.valid(); tile.advance(p.visits, Plain::tile.columns)) {
    const KeySegment& key = p.keys[p.visits[tile.visit].other];
    const std::int64_t first =
        first_row(place.batch, p.heads.kv_count, p.heads.kv_of(place.head), key.run) + tile.column;
    const std::int64_t position = query.run.at(me.row);
    const std::uint32_t visible = visible_in(p, tile, me.row);
    const std::int64_t key_position = key.run.at(tile.column + me.lane);
    float level = -INFINITY;
    if ((visible >> me.lane & 1u) != 0) {
      const float* const k = static_cast<const float*>(key.k) + (first + me.lane) * p.head_dim;
      level = terms.biased(map.rising(dot(me.shared, k, p.head_dim)), position, key_position);
    }
    largest.see(level);
    const RunningTop next(top, over_warp(level, [](float a, float b) { return fmaxf(a, b); }), unit);
    const float weight = prim::ex2(exponent_of(level, unit, next.top));
    top = next.top;
    sum = sum * next.rescale + weight;
    o.for_each(p.value_dim, [&](float& value, int) { value *= next.rescale; });
    o.add(terms.kept(weight, position, key_position), visible,
          static_cast<const float*>(key.v) + first * p.value_stride, p.value_dim, p.value_stride);
  }

  sum = over_warp(sum, [](float a, float b) { return a + b; });
  o.for_each(p.value_dim, [&](float& value, int x) { prim::store_global(o_out + x, sum == 0 ? 0.0f : value / sum); });
  __syncwarp();
  if (me.lane == 0) store_lse(query, row, top, sum);
  largest.raise(p, place.batch, place.head);
}

/// Where a pair stands.
struct PairPlace {
  std::int64_t query, key;
};

/// Weight of one score, as it is applied, and its product's gradient but for the factor, from products and the
/// statistics of its query.
struct ScoreGradient {
  float weight = 0, ds = 0;

  template <class Map>
  __device__ __forceinline__ void set(const Map& map, const typename Map::Terms& terms, const PairPlace& at, float unit,
                                      float product, const Split& lse, float dp, float delta) {
    const float kept = terms.kept(1.0f, at.query, at.key);
    map.derive([&](auto curve_of) {
      const auto curve = curve_of(product);
      weight = weight_of(terms.biased(curve.level, at.query, at.key), unit, lse);
      ds = map.gradient(weight * (dp * kept - delta), curve);
    });
    weight *= kept;
  }
};

template <class Shape>
__global__ void __launch_bounds__(Plain::threads, 1) plain_query_gradient(const __grid_constant__ AttendParams p) {
  using Map = typename Shape::Map;
  if (prim::any_thread(prim::raised(p.stop))) return;
  DISTATTN_SHARED_MEMORY(memory);
  const BlockPlace place(p, p.heads.q_count);
  const QuerySegment& query = p.queries[place.block.own];
  const WarpRow<Shape> me(place.block, memory);
  if (me.row >= query.run.count) return;
  const std::int64_t row = first_row(place.batch, p.heads.q_count, place.head, query.run) + me.row;
  share_row(me.shared, static_cast<const float*>(query.q) + row * p.head_dim, p.head_dim);
  share_row(me.shared + Shape::row_bytes, static_cast<const float*>(query.d_o) + row * p.value_dim, p.value_dim);
  const Split lse = load_natural(query, row).least_in_log2();
  const float delta = prim::load_global(query.delta + row);
  const Map map(p);
  const float unit = map.unit();
  const typename Map::Terms terms(p, place.batch, place.head);

  LaneRow<Shape> dq;
  for (TileCursor tile(p.visits, place.block); tile.valid(); tile.advance(p.visits, Plain::tile.columns)) {
    const KeySegment& key = p.keys[p.visits[tile.visit].other];
    const std::int64_t first =
        first_row(place.batch, p.heads.kv_count, p.heads.kv_of(place.head), key.run) + tile.column;
    const float* const k = static_cast<const float*>(key.k) + first * p.head_dim;
    const float* const v = static_cast<const float*>(key.v) + first * p.value_stride;
    const std::int64_t position = query.run.at(me.row);
    const std::uint32_t visible = visible_in(p, tile, me.row);
    ScoreGradient mine;
    if ((visible >> me.lane & 1u) != 0) {
      mine.set(map, terms, {position, key.run.at(tile.column + me.lane)}, unit,
               dot(me.shared, k + me.lane * p.head_dim, p.head_dim), lse,
               dot(me.shared + Shape::row_bytes, v + me.lane * p.value_stride, p.value_dim), delta);
    }
    dq.add(mine.ds, visible, k, p.head_dim, p.head_dim);
  }
  dq.store(query.dq + row * p.head_dim, p.head_dim, Map(p).factor(), query.carry);
}

template <class Shape>
__global__ void __launch_bounds__(Plain::threads, 1) plain_key_gradients(const __grid_constant__ AttendParams p) {
  using Map = typename Shape::Map;
  if (prim::any_thread(prim::raised(p.stop))) return;
  DISTATTN_SHARED_MEMORY(memory);
  const BlockPlace place(p, p.heads.kv_count);
  const KeySegment& key = p.keys[place.block.own];
  const WarpRow<Shape> me(place.block, memory);
  if (me.row >= key.run.count) return;
  const std::int64_t row = first_row(place.batch, p.heads.kv_count, place.head, key.run) + me.row;
  share_row(me.shared, static_cast<const float*>(key.k) + row * p.head_dim, p.head_dim);
  share_row(me.shared + Shape::row_bytes, static_cast<const float*>(key.v) + row * p.value_stride, p.value_dim);

  const Map map(p);
  const float unit = map.unit();
  LaneRow<Shape> dk, dv;
  for (HeadTileCursor at(p, place); at.valid(); at.advance(p, place.block, Plain::tile.columns)) {
    const QuerySegment& query = p.queries[p.visits[at.tile.visit].other];
    const std::int64_t first = first_row(place.batch, p.heads.q_count, at.head, query.run) + at.tile.column;
    const float* const q = static_cast<const float*>(query.q) + first * p.head_dim;
    const float* const d_o = static_cast<const float*>(query.d_o) + first * p.value_dim;
    const std::int64_t position = key.run.at(me.row);
    const std::uint32_t visible = visible_in(p, at.tile, me.row);
    const typename Map::Terms terms(p, place.batch, at.head);
    ScoreGradient mine;
    if ((visible >> me.lane & 1u) != 0) {
      mine.set(map, terms, {query.run.at(at.tile.column + me.lane), position}, unit,
               dot(me.shared, q + me.lane * p.head_dim, p.head_dim),
               load_natural(query, first + me.lane).least_in_log2(),
               dot(me.shared + Shape::row_bytes, d_o + me.lane * p.value_dim, p.value_dim),
               prim::load_global(query.delta + first + me.lane));
    }
    dv.add(mine.weight, visible, d_o, p.value_dim, p.value_dim);
    dk.add(mine.ds, visible, q, p.head_dim, p.head_dim);
  }
  dk.store(key.dk + row * p.head_dim, p.head_dim, Map(p).factor(), key.carry);
  dv.store(key.dv + row * p.value_stride, p.value_dim, 1.0f, key.carry || p.values_lie_in_keys(key));
}

}  // namespace distattn::kernels::cuda
