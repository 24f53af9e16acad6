#pragma once
/// Gradients on Hopper (spec §5): blocks own keys of one key head and visit the queries of its query heads. Products
/// are taken transposed, keys by queries, so that weights and their gradients pass from one to the next in registers.
/// dK and dV stay with the block; dQ, if wanted, is added to its accumulator by the copy engine, in any order.

#include "kernels/cuda/block_place.cuh"
#include "kernels/cuda/hopper_masks.cuh"
#include "kernels/cuda/hopper_tiles.cuh"
#include "kernels/cuda/rows.cuh"

namespace distattn::kernels::cuda {

/// A block's threads and shared memory. head_dim and value_dim are the paddings of the real ones.
template <class Element_, int dim, bool wants_dq_>
struct HopperGradientsShape {
  using Element = Element_;
  static constexpr int head_dim = dim, value_dim = dim;
  static constexpr bool wants_dq = wants_dq_;
  static constexpr int groups = 2;  ///< warpgroups that multiply, each 64 keys; behind them the one that copies
  static constexpr int consumers = groups * 128, threads = consumers + 128;
  static constexpr TileSize tile{groups * 64, dim > 64 ? 64 : 128};
  static constexpr int n_count = tile.columns / 8;
  static constexpr int producer_registers = 24, consumer_registers = 240;

  using KeyTile = PanelTile<groups * 64, dim>;             ///< of K or V
  using QueryTile = PanelTile<tile.columns, dim>;          ///< of Q or dO
  using ScoreTile = PanelTile<groups * 64, tile.columns>;  ///< of dSᵀ
  static constexpr int statistic_bytes = tile.columns * 4;
  static constexpr int stage_bytes = 2 * QueryTile::bytes;
  // Each warpgroup adds 64 × 64 of dQ at a time: 64 of the rows, or 64 of the columns.
  static_assert(tile.columns * dim == 64 * 128);
  static constexpr bool dq_by_rows = tile.columns > 64;
  static constexpr int dq_box_columns = box_row_bytes / 4, dq_boxes = 2, dq_box_bytes = 64 * box_row_bytes;
  static constexpr int dq_bytes = wants_dq ? groups * dq_boxes * dq_box_bytes : 0;
  static constexpr int score_bytes = wants_dq ? ScoreTile::bytes : 0;
  static constexpr int shared_bytes =
      2 * KeyTile::bytes + 2 * stage_bytes + 2 * score_bytes + dq_bytes + 4 * statistic_bytes + 5 * 8;
  static_assert(shared_bytes <= most_shared_bytes);
};

/// Where everything lies in shared memory. Tiles that pass are there twice.
template <class Shape>
struct HopperGradientsMemory {
  std::uint32_t k, v, stages, scores, dq_boxes, statistics;
  std::uint32_t keys_filled, filled, emptied;  ///< barriers, two each but for the keys

  __device__ __forceinline__ explicit HopperGradientsMemory(std::uint32_t base)
      : k(base),
        v(k + Shape::KeyTile::bytes),
        stages(v + Shape::KeyTile::bytes),
        scores(stages + 2 * Shape::stage_bytes),
        dq_boxes(scores + 2 * Shape::score_bytes),
        statistics(dq_boxes + Shape::dq_bytes),
        keys_filled(statistics + 4 * Shape::statistic_bytes),
        filled(keys_filled + 8),
        emptied(filled + 16) {}

  __device__ __forceinline__ std::uint32_t q(const Stage& stage) const {
    return stages + stage.index * Shape::stage_bytes;
  }
  __device__ __forceinline__ std::uint32_t d_o(const Stage& stage) const { return q(stage) + Shape::QueryTile::bytes; }
  __device__ __forceinline__ std::uint32_t ds(const Stage& stage) const {
    return scores + stage.index * Shape::score_bytes;
  }
  __device__ __forceinline__ std::uint32_t dq(int group, int box) const {
    return dq_boxes + static_cast<std::uint32_t>((group * Shape::dq_boxes + box) * Shape::dq_box_bytes);
  }
  __device__ __forceinline__ std::uint32_t lse(const Stage& stage) const {
    return statistics + stage.index * 2 * Shape::statistic_bytes;
  }
  __device__ __forceinline__ std::uint32_t delta(const Stage& stage) const {
    return lse(stage) + Shape::statistic_bytes;
  }
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
                                             const HopperGradientsMemory<Shape>& memory) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  HeadTileCursor next(p, place);
  if (!next.valid()) return;
  if (lane == 0) {
    const KeyMaps& maps = p.key_maps[place.block.own];
    const int plane = place.batch * p.heads.kv_count + place.head;
    prim::acquire_tensor_map(&maps.k);
    prim::acquire_tensor_map(&maps.v);
    prim::arrive_expecting(memory.keys_filled, 2 * Shape::KeyTile::bytes);
    Shape::KeyTile::load(memory.k, &maps.k, memory.keys_filled, place.block.row_begin, plane);
    Shape::KeyTile::load(memory.v, &maps.v, memory.keys_filled, place.block.row_begin, plane);
  }
  for (int tile = 0; next.valid(); ++tile) {
    const Stage stage(tile);
    const int other = p.visits[next.tile.visit].other, column = next.tile.column;
    const QuerySegment& query = p.queries[other];
    stage.await_emptied(memory.emptied);
    if (lane == 0) {
      const QueryMaps& maps = p.query_maps[other];
      const int plane = place.batch * p.heads.q_count + next.head;
      prim::acquire_tensor_map(&maps.q);
      prim::acquire_tensor_map(&maps.d_o);
      prim::arrive_expecting(stage.of(memory.filled), 2 * Shape::QueryTile::bytes);
      Shape::QueryTile::load(memory.q(stage), &maps.q, stage.of(memory.filled), column, plane);
      Shape::QueryTile::load(memory.d_o(stage), &maps.d_o, stage.of(memory.filled), column, plane);
    }
    const std::int64_t row = first_row(place.batch, p.heads.q_count, next.head, query.run) + column;
    DISTATTN_UNROLL
    for (int i = lane; i < Shape::tile.columns; i += 32) {
      const bool valid = column + i < query.run.count;
      const float lse = valid ? prim::load_global(query.lse + row + i) : 0.0f;
      const float delta = valid ? prim::load_global(query.delta + row + i) : 0.0f;
      const auto offset = static_cast<std::uint32_t>(i * 4);
      prim::store_shared(memory.lse(stage) + offset, lse * log2_e);
      prim::store_shared(memory.delta(stage) + offset, delta);
    }
    prim::arrive(stage.of(memory.filled));
    next.advance(p, place.block, Shape::tile.columns);
  }
}

/// From products to weights. Statistics belong to columns here. A query that sees nothing has lse -inf, but then no
/// tile with it is visible throughout: the masks hide what it would weigh.
template <class Shape>
__device__ __forceinline__ void weigh_columns(float (&s)[Shape::n_count][4], std::uint32_t lse, float scale,
                                              const TileMasks<Shape::n_count>& masks) {
  DISTATTN_UNROLL
  for (int n = 0; n < Shape::n_count; ++n) {
    const Pair top = prim::load_shared<Pair>(lse + static_cast<std::uint32_t>((8 * n + column_of()) * 4));
    DISTATTN_UNROLL
    for (int i = 0; i < 4; ++i) s[n][i] = prim::ex2(fmaf(s[n][i], scale, i % 2 == 0 ? -top.x : -top.y));
  }
  if (!masks.cut) return;
  DISTATTN_UNROLL
  for (int n = 0; n < Shape::n_count; ++n) {
    DISTATTN_UNROLL
    for (int i = 0; i < 4; ++i) s[n][i] = masks.sees(n, i) ? s[n][i] : 0.0f;
  }
}

/// dp: from gradients of weights to gradients of scores.
template <class Shape>
__device__ __forceinline__ void differentiate(float (&dp)[Shape::n_count][4], const float (&weights)[Shape::n_count][4],
                                              std::uint32_t delta) {
  DISTATTN_UNROLL
  for (int n = 0; n < Shape::n_count; ++n) {
    const Pair sum = prim::load_shared<Pair>(delta + static_cast<std::uint32_t>((8 * n + column_of()) * 4));
    DISTATTN_UNROLL
    for (int i = 0; i < 4; ++i) dp[n][i] = weights[n][i] * (dp[n][i] - (i % 2 == 0 ? sum.x : sum.y));
  }
}

/// Shares this warpgroup's 64 rows of dSᵀ, which it has as the left operand of a product.
template <class Shape>
__device__ __forceinline__ void share_scores(const std::uint32_t (&ds)[Shape::n_count / 2][4], std::uint32_t tile) {
  DISTATTN_UNROLL
  for (int k = 0; k < Shape::n_count / 2; ++k) {
    DISTATTN_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = row_of<1>(0, i % 2), column = 16 * k + i / 2 * 8;
      const std::uint32_t chunk_address = Shape::ScoreTile::chunk_address(tile, row, column);
      prim::store_shared(chunk_address + static_cast<std::uint32_t>(column_of() * 2), ds[k][i]);
    }
  }
}

/// A warpgroup's share of adding a tile's dQ: 64 × 64, through two boxes of shared memory.
template <class Shape>
struct QueryGradientAdder {
  using ScoreTile = typename Shape::ScoreTile;
  using KeyTile = typename Shape::KeyTile;
  const HopperGradientsMemory<Shape>& memory;
  int group;
  float dq[8][4];

  __device__ __forceinline__ int row() const { return Shape::dq_by_rows ? 64 * group : 0; }
  __device__ __forceinline__ int column() const { return Shape::dq_by_rows ? 0 : 64 * group; }

  /// Multiplies dS, shared by both warpgroups, by the keys.
  __device__ __forceinline__ void start(const Stage& stage) {
    prim::fence_products(dq);
    const std::uint64_t l = ScoreTile::by_columns(memory.ds(stage), 0, row());
    const std::uint64_t r = KeyTile::by_columns(memory.k, 0, column());
    DISTATTN_UNROLL
    for (int k = 0; k < KeyTile::rows; k += 16) {
      prim::multiply<typename Shape::Element, prim::Major::other, prim::Major::other>(dq, l + ScoreTile::step(k, 0),
                                                                                      r + KeyTile::step(k, 0), k > 0);
    }
  }

  /// Hands the product to the copy engine. `begin`: the tile's first query.
  __device__ __forceinline__ void add(const TensorMap* map, int begin, int plane, float scale) {
    constexpr int first_barrier = 2;
    const bool leads = threadIdx.x % 128 == 0;
    prim::wait_for_products<0>(dq);
    if (leads) prim::wait_for_stores<0>();
    prim::barrier_sync(first_barrier + group, 128);  // the boxes are free
    DISTATTN_UNROLL
    for (int n = 0; n < 8; ++n) {
      DISTATTN_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int in_box = row_of<1>(0, half) % 64, floats = n % 4 * 8 + column_of();
        const std::uint32_t chunk_address = swizzled_chunk(memory.dq(group, n / 4), in_box, floats / 4);
        prim::store_shared(chunk_address + static_cast<std::uint32_t>(floats % 4 * 4),
                           Pair{dq[n][2 * half] * scale, dq[n][2 * half + 1] * scale});
      }
    }
    prim::fence_proxy();
    prim::barrier_sync(first_barrier + group, 128);
    if (!leads) return;
    prim::acquire_tensor_map(map);
    DISTATTN_UNROLL
    for (int box = 0; box < Shape::dq_boxes; ++box) {
      prim::add_box(map, memory.dq(group, box), column() + box * Shape::dq_box_columns, begin + row(), plane);
    }
    prim::commit_stores();
  }
};

/// A warpgroup's 64 keys against every tile of queries.
template <class Shape>
__device__ __forceinline__ void differentiate_tiles(float (&dk)[1][Shape::head_dim / 8][4],
                                                    float (&dv)[1][Shape::value_dim / 8][4], const AttendParams& p,
                                                    const BlockPlace& place, const Run& keys,
                                                    const HopperGradientsMemory<Shape>& memory, int group) {
  using Element = typename Shape::Element;
  using KeyTile = typename Shape::KeyTile;
  using QueryTile = typename Shape::QueryTile;
  HeadTileCursor next(p, place);
  if (!next.valid()) return;
  const float unit = p.scale * log2_e;
  const bool leads_warp = threadIdx.x % 32 == 0;
  float s[Shape::n_count][4], dp[Shape::n_count][4];
  std::uint32_t weights[Shape::n_count / 2][4], ds[Shape::n_count / 2][4];
  QueryGradientAdder<Shape> adder{memory, group, {}};
  prim::wait_for_phase(memory.keys_filled, 0);
  for (int tile = 0; next.valid(); ++tile) {
    const Stage stage(tile);
    const Visit& visit = p.visits[next.tile.visit];
    TileMasks<Shape::n_count> masks(p, next.tile, keys, place.block.row_begin, p.queries[visit.other].run);
    if constexpr (Shape::wants_dq) masks.hide_rows_past_end(place.block.row_begin, Shape::tile.rows, keys);
    stage.await_filled(memory.filled);
    prim::fence_products(s, dp);
    start_product_of_rows<Element, KeyTile, QueryTile, Shape::head_dim>(s, memory.k, 64 * group, memory.q(stage));
    prim::commit_products();
    start_product_of_rows<Element, KeyTile, QueryTile, Shape::value_dim>(dp, memory.v, 64 * group, memory.d_o(stage));
    prim::commit_products();
    prim::wait_for_products<1>(s);
    weigh_columns<Shape>(s, memory.lse(stage), unit, masks);
    round_to_operand<Element>(weights, s);
    prim::wait_for_products<0>(dp);
    differentiate<Shape>(dp, s, memory.delta(stage));
    round_to_operand<Element>(ds, dp);
    if constexpr (Shape::wants_dq) {
      constexpr int shared_barrier = 1;
      share_scores<Shape>(ds, memory.ds(stage));
      prim::fence_proxy();
      prim::barrier_sync(shared_barrier, Shape::consumers);
    }
    prim::fence_products(dv[0], weights, dk[0], ds);
    start_product<Element, QueryTile>(dv[0], weights, memory.d_o(stage));
    start_product<Element, QueryTile>(dk[0], ds, memory.q(stage));
    prim::commit_products();
    if constexpr (Shape::wants_dq) {
      adder.start(stage);
      prim::commit_products();
    }
    prim::wait_for_products<0>(dv[0], dk[0]);
    if (leads_warp) prim::arrive(stage.of(memory.emptied));
    if constexpr (Shape::wants_dq) {
      adder.add(&p.query_maps[visit.other].dq, next.tile.column, place.batch * p.heads.q_count + next.head, p.scale);
    }
    next.advance(p, place.block, Shape::tile.columns);
  }
  if constexpr (Shape::wants_dq) prim::wait_for_stores<0>();
}

template <class Shape>
__global__ void __launch_bounds__(Shape::threads, 1) hopper_gradients(const __grid_constant__ AttendParams p) {
  if (prim::any_thread(prim::raised(p.stop))) return;
  DISTATTN_SHARED_MEMORY(bytes);
  const HopperGradientsMemory<Shape> memory(prim::shared_address(bytes));
  if (threadIdx.x == 0) memory.init_barriers();
  __syncthreads();
  const BlockPlace place(p, p.heads.kv_count);
  const int group = warpgroup();
  if (group == Shape::groups) {
    prim::fewer_registers<Shape::producer_registers>();
    if (threadIdx.x < Shape::consumers + 32) feed_queries<Shape>(p, place, memory);
    return;
  }
  prim::more_registers<Shape::consumer_registers>();
  const KeySegment& key = p.keys[place.block.own];
  const std::int64_t head_row = first_row(place.batch, p.heads.kv_count, place.head, key.run);
  float dk[1][Shape::head_dim / 8][4], dv[1][Shape::value_dim / 8][4];
  clear(dk);
  clear(dv);
  differentiate_tiles<Shape>(dk, dv, p, place, key.run, memory, group);
  for_each_row<1>(place.block.row_begin, key.run.count, [&](int, int half, std::int64_t row) {
    float* const dk_row = key.dk + (head_row + row) * p.head_dim + column_of();
    store_row<Shape::head_dim>(dk_row, dk[0], half, p.head_dim, p.scale, key.carry);
    float* const dv_row = key.dv + (head_row + row) * p.value_dim + column_of();
    store_row<Shape::value_dim>(dv_row, dv[0], half, p.value_dim, 1.0f, key.carry);
  });
}

/// Describes what hopper_gradients copies and adds to.
template <class Shape>
int describe_for_gradients(const TileShape& shape, std::span<const QuerySegment> queries,
                           std::span<QueryMaps> query_maps, std::span<const KeySegment> keys,
                           std::span<KeyMaps> key_maps) {
  constexpr BoxRows boxes{
      .q = Shape::tile.columns, .d_o = Shape::tile.columns, .dq = Shape::wants_dq ? 64 : 0, .keys = Shape::tile.rows};
  return describe_tensors<typename Shape::Element>(boxes, shape, queries, query_maps, keys, key_maps);
}

template <class Shape>
int launch_hopper_gradients(const AttendParams& params, unsigned grid, Stream stream) {
  return prim::launch(hopper_gradients<Shape>, {grid, Shape::threads, Shape::shared_bytes}, stream, params);
}

}  // namespace distattn::kernels::cuda
