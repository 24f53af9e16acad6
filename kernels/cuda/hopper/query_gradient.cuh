#pragma once
/// dQ on Hopper where its bits must not change from run to run: blocks own query rows and visit keys, as in
/// the forward pass. Scores and gradients of weights stay in registers; nothing is added atomically.

#include "kernels/cuda/hopper/tiles.cuh"
#include "kernels/cuda/query_rows.cuh"
#include "kernels/cuda/tile_masks.cuh"

namespace distattn::kernels::cuda {

/// A block's threads and shared memory. head_dim and value_dim are the paddings of the real ones.
template <class Element_, int head_dim_, int value_dim_, int columns>
struct HopperQueryGradientShape {
  using Element = Element_;
  using Map = LinearScores;  ///< of scores: gradients need no levels, which weights replace
  static constexpr int head_dim = head_dim_, value_dim = value_dim_;
  static constexpr int groups = 2;  ///< warpgroups that multiply, each 64 rows; behind them the one that copies
  static constexpr int consumers = groups * 128, threads = consumers + 128;
  static constexpr TileSize tile{groups * 64, columns};
  static constexpr int n_count = columns / 8;
  static constexpr int producer_registers = 24, consumer_registers = 240;

  using QTile = PanelTile<groups * 64, head_dim>;
  using DoTile = PanelTile<groups * 64, value_dim>;
  using KTile = PanelTile<columns, head_dim>;
  using VTile = PanelTile<columns, value_dim>;
  static constexpr int stage_bytes = KTile::bytes + VTile::bytes;
  static constexpr int shared_bytes = QTile::bytes + DoTile::bytes + 2 * stage_bytes + 5 * 8;
  static_assert(shared_bytes <= most_shared_bytes);
};

/// Where everything lies in shared memory. Tiles that pass are there twice.
template <class Shape>
struct HopperQueryGradientMemory {
  std::uint32_t q, d_o, stages;
  std::uint32_t queries_filled, filled, emptied;  ///< barriers, two each but for the queries

  __device__ __forceinline__ explicit HopperQueryGradientMemory(std::uint32_t base)
      : q(base),
        d_o(q + Shape::QTile::bytes),
        stages(d_o + Shape::DoTile::bytes),
        queries_filled(stages + 2 * Shape::stage_bytes),
        filled(queries_filled + 8),
        emptied(filled + 16) {}

  __device__ __forceinline__ std::uint32_t k(const Stage& stage) const {
    return stages + stage.index * Shape::stage_bytes;
  }
  __device__ __forceinline__ std::uint32_t v(const Stage& stage) const { return k(stage) + Shape::KTile::bytes; }
  __device__ __forceinline__ void init_barriers() const {
    prim::init_barrier(queries_filled, 1);
    for (std::uint32_t stage = 0; stage < 2; ++stage) {
      prim::init_barrier(filled + stage * 8, 1);
      prim::init_barrier(emptied + stage * 8, Shape::consumers / 32);
    }
    prim::publish_barriers();
  }
};

/// One thread: feeds the queries, then the tiles of keys and values through the stages.
template <class Shape>
__device__ __forceinline__ void feed_keys(const AttendParams& p, const BlockPlace& place,
                                          const HopperQueryGradientMemory<Shape>& memory) {
  const int query_plane = place.batch * p.heads.q_count + place.head;
  const int key_plane = place.batch * p.heads.kv_count + p.heads.kv_of(place.head);
  TileCursor next(p.visits, place.block);
  if (!next.valid()) return;
  const QueryMaps& query = p.query_maps[place.block.own];
  prim::acquire_tensor_map(&query.q);
  prim::acquire_tensor_map(&query.d_o);
  prim::arrive_expecting(memory.queries_filled, Shape::QTile::bytes + Shape::DoTile::bytes);
  Shape::QTile::load(memory.q, &query.q, memory.queries_filled, place.block.row_begin, query_plane);
  Shape::DoTile::load(memory.d_o, &query.d_o, memory.queries_filled, place.block.row_begin, query_plane);
  int acquired = -1;
  for (int tile = 0; next.valid(); ++tile) {
    const Stage stage(tile);
    const int other = p.visits[next.visit].other;
    const KeyMaps& key = p.key_maps[other];
    acquire_maps(acquired, other, key.k, key.v);
    stage.await_emptied(memory.emptied);
    prim::arrive_expecting(stage.of(memory.filled), Shape::stage_bytes);
    Shape::KTile::load(memory.k(stage), &key.k, stage.of(memory.filled), next.column, key_plane);
    Shape::VTile::load(memory.v(stage), &key.v, stage.of(memory.filled), next.column, key_plane);
    next.advance(p.visits, Shape::tile.columns);
  }
}

/// From products to weights. A row that sees nothing has lse -inf: only what is visible may have a weight.
/// That this is a branch keeps the weights before the next wait.
template <class Map, int n_count>
__device__ __forceinline__ void weigh_rows(float (&s)[n_count][4], const RowStatistics& statistics, const Map& map,
                                           float unit, const TileMasks<n_count>& masks) {
  static_assert(Map::is_linear);
  DISTATTN_UNROLL
  for (int n = 0; n < n_count; ++n) {
    DISTATTN_UNROLL
    for (int i = 0; i < 4; ++i) s[n][i] = weight_of(map.level(s[n][i]), unit, statistics.lse[i / 2]);
  }
  if (!masks.cut) return;
  DISTATTN_UNROLL
  for (int n = 0; n < n_count; ++n) {
    DISTATTN_UNROLL
    for (int i = 0; i < 4; ++i) s[n][i] = masks.sees(n, i) ? s[n][i] : 0.0f;
  }
}

/// A warpgroup's 64 queries against every tile of the block's visits. While it weighs one tile, its gradient of the one
/// before and the other warpgroup's products keep the tensor cores busy.
template <class Shape>
__device__ __forceinline__ void differentiate_queries(float (&dq)[1][Shape::KTile::pieces][4], const AttendParams& p,
                                                      const BlockPlace& place, const RowStatistics& statistics,
                                                      const HopperQueryGradientMemory<Shape>& memory, int group) {
  using Element = typename Shape::Element;
  TileCursor next(p.visits, place.block);
  if (!next.valid()) return;
  const typename Shape::Map map(p);
  const float unit = map.unit();
  const bool leads_warp = threadIdx.x % 32 == 0;
  float s[Shape::n_count][4], dp[Shape::n_count][4];
  std::uint32_t ds[Shape::n_count / 2][4];
  prim::wait_for_phase(memory.queries_filled, 0);
  for (int tile = 0; next.valid(); ++tile) {
    const Stage stage(tile);
    const TileMasks<Shape::n_count> masks(p, next, place.block.row_begin);
    next.advance(p.visits, Shape::tile.columns);
    stage.await_filled(memory.filled);
    prim::fence_products(s, dp);
    start_product_of_rows<Element, typename Shape::QTile, typename Shape::KTile, Shape::head_dim>(
        s, memory.q, 64 * group, memory.k(stage));
    prim::commit_products();
    start_product_of_rows<Element, typename Shape::DoTile, typename Shape::VTile, Shape::value_dim>(
        dp, memory.d_o, 64 * group, memory.v(stage));
    prim::commit_products();
    prim::wait_for_products<1>(s, dq[0]);
    if (leads_warp && tile > 0) prim::arrive(Stage(tile - 1).of(memory.emptied));
    weigh_rows(s, statistics, map, unit, masks);
    prim::wait_for_products<0>(dp);
    DISTATTN_UNROLL
    for (int n = 0; n < Shape::n_count; ++n) {
      DISTATTN_UNROLL
      for (int i = 0; i < 4; ++i) dp[n][i] = s[n][i] * (dp[n][i] - statistics.delta[i / 2]);
    }
    round_to_operand<Element>(ds, dp);
    prim::fence_products(dq[0], ds);
    start_product<Element, typename Shape::KTile>(dq[0], ds, memory.k(stage));
    prim::commit_products();
  }
  prim::wait_for_products<0>(dq[0]);
}

template <class Shape>
__global__ void __launch_bounds__(Shape::threads, 1) hopper_query_gradient(const __grid_constant__ AttendParams p) {
  if (prim::any_thread(prim::raised(p.stop))) return;
  DISTATTN_SHARED_MEMORY(bytes);
  const HopperQueryGradientMemory<Shape> memory(prim::shared_address(bytes));
  if (threadIdx.x == 0) memory.init_barriers();
  __syncthreads();
  const BlockPlace place(p, p.heads.q_count);
  const int group = warpgroup();
  if (group == Shape::groups) {
    prim::fewer_registers<Shape::producer_registers>();
    if (threadIdx.x == Shape::consumers) feed_keys<Shape>(p, place, memory);
    return;
  }
  prim::more_registers<Shape::consumer_registers>();
  const QuerySegment& query = p.queries[place.block.own];
  const std::int32_t row_begin = place.block.row_begin;
  const std::int64_t head_row = first_row(place.batch, p.heads.q_count, place.head, query.run);
  float dq[1][Shape::KTile::pieces][4];
  clear(dq);
  differentiate_queries<Shape>(dq, p, place, RowStatistics(query, row_begin, head_row), memory, group);
  store_query_gradient<typename Shape::Map>(dq, p, query, row_begin, head_row, {0, p.head_dim});
}

/// Describes what hopper_query_gradient copies.
template <class Shape>
int describe_for_query_gradient(const TileShape& shape, std::span<const QuerySegment> queries,
                                std::span<QueryMaps> query_maps, std::span<const KeySegment> keys,
                                std::span<KeyMaps> key_maps) {
  constexpr BoxRows boxes{.q = Shape::tile.rows, .d_o = Shape::tile.rows, .keys = Shape::tile.columns};
  return describe_tensors<typename Shape::Element>(boxes, shape, queries, query_maps, keys, key_maps);
}

template <class Shape>
int launch_hopper_query_gradient(const AttendParams& params, unsigned grid, Stream stream) {
  return prim::launch(hopper_query_gradient<Shape>, {grid, Shape::threads, Shape::shared_bytes}, stream, params);
}

}  // namespace distattn::kernels::cuda
