#pragma once
/// Blocks that own keys of one key head on Hopper: K and V stay in shared memory, the queries of its query heads pass
/// through with their statistics. Products are taken transposed, keys by queries, so that weights and their gradients
/// pass from one to the next in registers.

#include "kernels/cuda/block_place.cuh"
#include "kernels/cuda/hopper/tiles.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/scores.cuh"
#include "kernels/cuda/tile_masks.cuh"
#include "kernels/cuda/tile_terms.cuh"

namespace distattn::kernels::cuda {

/// A block's threads and tiles of `keys` by `queries`. head_dim and value_dim are the paddings of the real ones.
/// Kernels derive theirs from it, with `own_bytes` of shared memory in addition to what is here.
template <class Element_, int head_dim_, int value_dim_, int keys, int queries, class Map_ = LinearScores>
struct KeyBlockShape {
  using Element = Element_;
  using Map = Map_;  ///< of scores
  static constexpr int head_dim = head_dim_, value_dim = value_dim_;
  static constexpr int groups = 2;  ///< warpgroups that multiply; behind them the one that copies
  static constexpr int consumers = groups * 128, threads = consumers + 128;
  static constexpr TileSize tile{keys, queries};
  static constexpr int n_count = queries / 8;
  static constexpr int producer_registers = 24, consumer_registers = 240;

  using KTile = PanelTile<keys, head_dim>;
  using VTile = PanelTile<keys, value_dim>;
  using QTile = PanelTile<queries, head_dim>;
  using DoTile = PanelTile<queries, value_dim>;
  static constexpr int stage_bytes = QTile::bytes + DoTile::bytes;
  static constexpr int lse_bytes = queries * 8, delta_bytes = queries * 4, statistic_bytes = lse_bytes + delta_bytes;
  static constexpr int common_bytes = KTile::bytes + VTile::bytes + 2 * (stage_bytes + statistic_bytes) + 5 * 8;
};

/// Where everything lies in shared memory. Tiles that pass are there twice.
template <class Shape>
struct KeyBlockMemory {
  std::uint32_t k, v, stages;
  std::uint32_t own;  ///< the kernel's own bytes
  std::uint32_t statistics;
  std::uint32_t keys_filled, filled, emptied;  ///< barriers, two each but for the keys
  std::uint32_t end;

  __device__ __forceinline__ explicit KeyBlockMemory(std::uint32_t base)
      : k(base),
        v(k + Shape::KTile::bytes),
        stages(v + Shape::VTile::bytes),
        own(stages + 2 * Shape::stage_bytes),
        statistics(own + Shape::own_bytes),
        keys_filled(statistics + 2 * Shape::statistic_bytes),
        filled(keys_filled + 8),
        emptied(filled + 16),
        end(emptied + 16) {}

  __device__ __forceinline__ std::uint32_t q(const Stage& stage) const {
    return stages + stage.index * Shape::stage_bytes;
  }
  __device__ __forceinline__ std::uint32_t d_o(const Stage& stage) const { return q(stage) + Shape::QTile::bytes; }
  __device__ __forceinline__ std::uint32_t lse(const Stage& stage) const {
    return statistics + stage.index * Shape::statistic_bytes;
  }
  __device__ __forceinline__ std::uint32_t delta(const Stage& stage) const { return lse(stage) + Shape::lse_bytes; }
  /// One thread.
  __device__ __forceinline__ void init_barriers() const {
    prim::init_barrier(keys_filled, 1);
    for (std::uint32_t stage = 0; stage < 2; ++stage) {
      prim::init_barrier(filled + stage * 8, 1 + 32);  // bytes, and a warp's statistics
      prim::init_barrier(emptied + stage * 8, Shape::consumers / 32);
    }
    prim::publish_barriers();
  }
};

/// One warp: feeds the keys, then the tiles of queries with their statistics, through the stages.
template <class Shape>
__device__ __forceinline__ void feed_queries(const AttendParams& p, const BlockPlace& place,
                                             const KeyBlockMemory<Shape>& memory) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int statistics = (Shape::tile.columns + 31) / 32;  // of a lane
  HeadTileCursor next(p, place);
  if (!next.valid()) return;
  if (lane == 0) {
    const KeyMaps& maps = p.key_maps[place.block.own];
    const int plane = place.batch * p.heads.kv_count + place.head;
    prim::acquire_tensor_map(&maps.k);
    prim::acquire_tensor_map(&maps.v);
    prim::arrive_expecting(memory.keys_filled, Shape::KTile::bytes + Shape::VTile::bytes);
    Shape::KTile::load(memory.k, &maps.k, memory.keys_filled, place.block.row_begin, plane);
    Shape::VTile::load(memory.v, &maps.v, memory.keys_filled, place.block.row_begin, plane);
  }
  int acquired = -1;
  for (int tile = 0; next.valid(); ++tile) {
    const Stage stage(tile);
    const int other = p.visits[next.tile.visit].other, column = next.tile.column;
    const QuerySegment& query = p.queries[other];
    const std::int64_t row = first_row(place.batch, p.heads.q_count, next.head, query.run) + column;
    NaturalLse lse[statistics];  // loaded while the buffer is still in use
    float delta[statistics];
    DISTATTN_UNROLL
    for (int i = 0; i < statistics; ++i) {
      const int at = lane + 32 * i;
      const bool valid = column + at < query.run.count;
      lse[i] = valid ? load_natural(query, row + at) : NaturalLse{0, 0};
      delta[i] = valid ? prim::load_global(query.delta + row + at) : 0.0f;
    }
    stage.await_emptied(memory.emptied);
    if (lane == 0) {
      const QueryMaps& maps = p.query_maps[other];
      const int plane = place.batch * p.heads.q_count + next.head;
      acquire_maps(acquired, other, maps.q, maps.d_o);
      prim::arrive_expecting(stage.of(memory.filled), Shape::stage_bytes);
      Shape::QTile::load(memory.q(stage), &maps.q, stage.of(memory.filled), column, plane);
      Shape::DoTile::load(memory.d_o(stage), &maps.d_o, stage.of(memory.filled), column, plane);
    }
    DISTATTN_UNROLL
    for (int i = 0; i < statistics; ++i) {
      if (Shape::tile.columns % 32 != 0 && lane + 32 * i >= Shape::tile.columns) break;
      const auto offset = static_cast<std::uint32_t>((lane + 32 * i) * 4);
      const Split split_lse = lse[i].least_in_log2();
      prim::store_shared(memory.lse(stage) + 2 * offset, Pair{split_lse.top, split_lse.rest});
      prim::store_shared(memory.delta(stage) + offset, delta[i]);
    }
    prim::arrive(stage.of(memory.filled));
    next.advance(p, place.block, Shape::tile.columns);
  }
}

/// A statistic of the two columns that this lane holds of every piece: Pair, or Quad where it is Split. The first
/// pieces' are loaded at once, before what they are used with is there; the others when they are used.
template <class OfColumns, int early>
struct ColumnStatistics {
  std::uint32_t columns;
  OfColumns first[early];

  __device__ __forceinline__ explicit ColumnStatistics(std::uint32_t columns_) : columns(columns_) {
    DISTATTN_UNROLL
    for (int n = 0; n < early; ++n) first[n] = load(n);
  }
  __device__ __forceinline__ OfColumns of(int n) const { return n < early ? first[n] : load(n); }

 private:
  __device__ __forceinline__ OfColumns load(int n) const {
    return prim::load_shared<OfColumns>(columns +
                                        static_cast<std::uint32_t>((4 * n + column_of() / 2) * sizeof(OfColumns)));
  }
};

/// From products to weights, `count` pieces from `first`. Statistics belong to columns here. A query that sees nothing
/// has lse -inf, but then no tile with it is visible throughout: the masks hide what it would weigh.
template <class Shape, int early>
__device__ __forceinline__ void weigh_columns(float (&s)[Shape::n_count][4], int first, int count,
                                              const ColumnStatistics<Quad, early>& lse, const typename Shape::Map& map,
                                              float unit, const TileMasks<Shape::n_count>& masks) {
  DISTATTN_UNROLL
  for (int n = first; n < first + count; ++n) {
    const Quad two = lse.of(n);
    const Split of_column[2] = {{two.x, two.y}, {two.z, two.w}};
    DISTATTN_UNROLL
    for (int i = 0; i < 4; ++i) s[n][i] = weight_of(map.level(s[n][i]), unit, of_column[i % 2]);
  }
  if (!masks.cut) return;
  DISTATTN_UNROLL
  for (int n = first; n < first + count; ++n) {
    DISTATTN_UNROLL
    for (int i = 0; i < 4; ++i) s[n][i] = masks.sees(n, i) ? s[n][i] : 0.0f;
  }
}

template <class Shape>
using ColumnTerms = TileTerms<typename Shape::Map, Owner::keys, Shape::n_count>;

/// The same of all pieces where scores are no multiples of products: weights go to `applied`, as they are applied and
/// rounded to operands, and s becomes what gradients of scores are multiplied by for those of products.
template <class Shape, int early>
__device__ __forceinline__ void weigh_and_round_columns(float (&s)[Shape::n_count][4],
                                                        std::uint32_t (&applied)[Shape::n_count / 2][4],
                                                        const ColumnStatistics<Quad, early>& lse,
                                                        const typename Shape::Map& map,
                                                        const TileMasks<Shape::n_count>& masks,
                                                        const ColumnTerms<Shape>& terms) {
  float weights[Shape::n_count][4];
  map.derive([&](auto curve_of) {
    DISTATTN_UNROLL
    for (int n = 0; n < Shape::n_count; ++n) {
      const Quad two = lse.of(n);
      const Split of_column[2] = {{two.x, two.y}, {two.z, two.w}};
      DISTATTN_UNROLL
      for (int i = 0; i < 4; ++i) {
        const auto curve = curve_of(s[n][i]);
        const bool seen = !masks.cut || masks.sees(n, i);
        const float weight = seen ? weight_of(terms.biased(curve.level, 0, n, i), map.unit(), of_column[i % 2]) : 0.0f;
        weights[n][i] = terms.kept(weight, 0, n, i);
        s[n][i] = map.gradient(weight, curve);
      }
    }
  });
  round_to_operand<typename Shape::Element>(applied, weights);
}

/// dp: from gradients of weights, of which kept(gradient, n, i) counts, to gradients of products but for the factor.
template <class Shape, int early, class Kept>
__device__ __forceinline__ void differentiate(float (&dp)[Shape::n_count][4], const float (&weights)[Shape::n_count][4],
                                              const ColumnStatistics<Pair, early>& delta, Kept kept) {
  DISTATTN_UNROLL
  for (int n = 0; n < Shape::n_count; ++n) {
    const Pair sum = delta.of(n);
    DISTATTN_UNROLL
    for (int i = 0; i < 4; ++i) dp[n][i] = weights[n][i] * (kept(dp[n][i], n, i) - (i % 2 == 0 ? sum.x : sum.y));
  }
}

/// Describes what the blocks copy, and dq where they add to it.
template <class Shape>
int describe_for_key_blocks(const TileShape& shape, std::span<const QuerySegment> queries,
                            std::span<QueryMaps> query_maps, std::span<const KeySegment> keys,
                            std::span<KeyMaps> key_maps) {
  constexpr BoxRows boxes{
      .q = Shape::tile.columns, .d_o = Shape::tile.columns, .dq = Shape::dq_box_rows, .keys = Shape::tile.rows};
  return describe_tensors<typename Shape::Element>(boxes, shape, queries, query_maps, keys, key_maps);
}

}  // namespace distattn::kernels::cuda
