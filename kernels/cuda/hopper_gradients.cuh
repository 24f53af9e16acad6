#pragma once
/// Gradients on Hopper (spec §5): blocks own keys of one key head and visit the queries of its query heads. Products
/// are taken transposed, keys by queries, so that weights and their gradients pass from one to the next in registers.
/// dK and dV stay with the block; dQ, if wanted, is added to its accumulator by the copy engine, in any order.

#include "kernels/cuda/hopper_key_blocks.cuh"

namespace distattn::kernels::cuda {

/// A block's threads and shared memory: each warpgroup that multiplies has 64 keys. head_dim and value_dim are `dim`,
/// the padding of the real ones. dv_before_ds: dV is multiplied while dS is made of the same weights, which takes more
/// registers; else while dS is shared.
template <class Element_, int dim, bool wants_dq_, bool dv_before_ds_ = (dim > 64)>
struct HopperGradientsShape : KeyBlockShape<Element_, dim, dim, 128, dim <= 64 ? 128 : 64> {
  using Base = KeyBlockShape<Element_, dim, dim, 128, dim <= 64 ? 128 : 64>;
  using Base::tile;
  using KTile = typename Base::KTile;
  static constexpr bool wants_dq = wants_dq_, dv_before_ds = dv_before_ds_;
  using ScoreTile = PanelTile<tile.rows, tile.columns>;  ///< of dSᵀ
  // Each warpgroup adds 64 × 64 of dQ at a time: 64 of the rows, or 64 of the columns.
  static_assert(tile.columns * KTile::panels == 128);
  static constexpr bool dq_by_rows = tile.columns > 64;
  static constexpr int dq_box_rows = wants_dq ? 64 : 0;
  static constexpr int dq_box_columns = box_row_bytes / 4, dq_boxes = 2, dq_box_bytes = 64 * box_row_bytes;
  static constexpr int dq_bytes = wants_dq ? Base::groups * dq_boxes * dq_box_bytes : 0;
  static constexpr int score_bytes = wants_dq ? ScoreTile::bytes : 0;
  static constexpr int own_bytes = 2 * score_bytes + dq_bytes;
  static constexpr int shared_bytes = Base::common_bytes + own_bytes;
  static_assert(shared_bytes <= most_shared_bytes);
};

/// dS is there twice, as tiles that pass are.
template <class Shape>
struct HopperGradientsMemory : KeyBlockMemory<Shape> {
  using KeyBlockMemory<Shape>::KeyBlockMemory;

  __device__ __forceinline__ std::uint32_t ds(const Stage& stage) const {
    return this->own + stage.index * Shape::score_bytes;
  }
  __device__ __forceinline__ std::uint32_t dq(int group, int box) const {
    return this->own + 2 * Shape::score_bytes +
           static_cast<std::uint32_t>((group * Shape::dq_boxes + box) * Shape::dq_box_bytes);
  }
};

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
  using KTile = typename Shape::KTile;
  const HopperGradientsMemory<Shape>& memory;
  int group;
  float dq[8][4];
  int acquired = -1;

  __device__ __forceinline__ int row() const { return Shape::dq_by_rows ? 64 * group : 0; }
  __device__ __forceinline__ int column() const { return Shape::dq_by_rows ? 0 : 64 * group; }

  /// Multiplies dS, shared by both warpgroups, by the keys.
  __device__ __forceinline__ void start(const Stage& stage) {
    prim::fence_products(dq);
    const std::uint64_t l = ScoreTile::by_columns(memory.ds(stage), 0, row());
    const std::uint64_t r = KTile::by_columns(memory.k, 0, column());
    DISTATTN_UNROLL
    for (int k = 0; k < KTile::rows; k += 16) {
      prim::multiply<typename Shape::Element, prim::Major::other, prim::Major::other>(dq, l + ScoreTile::step(k, 0),
                                                                                      r + KTile::step(k, 0), k > 0);
    }
  }

  /// Hands the product, awaited, to the copy engine. `begin`: the tile's first query.
  __device__ __forceinline__ void add(const QueryMaps* maps, int other, int begin, int plane, float scale) {
    constexpr int first_barrier = 2;
    const bool leads = threadIdx.x % 128 == 0;
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
    const TensorMap& map = maps[other].dq;
    acquire_maps(acquired, other, map);
    DISTATTN_UNROLL
    for (int box = 0; box < Shape::dq_boxes; ++box) {
      prim::add_box(&map, memory.dq(group, box), column() + box * Shape::dq_box_columns, begin + row(), plane);
    }
    prim::commit_stores();
  }
};

/// A warpgroup's 64 keys against every tile of queries. Something is being multiplied meanwhile: dP while it weighs, dV
/// while it differentiates or shares dS, dK while it hands on dQ.
template <class Shape>
__device__ __forceinline__ void differentiate_tiles(float (&dk)[1][Shape::QTile::pieces][4],
                                                    float (&dv)[1][Shape::DoTile::pieces][4], const AttendParams& p,
                                                    const BlockPlace& place, const Run& keys,
                                                    const HopperGradientsMemory<Shape>& memory, int group) {
  using Element = typename Shape::Element;
  using KTile = typename Shape::KTile;
  using QTile = typename Shape::QTile;
  using DoTile = typename Shape::DoTile;
  HeadTileCursor next(p, place);
  if (!next.valid()) return;
  const float unit = p.scale * log2_e;
  const bool leads_warp = threadIdx.x % 32 == 0;
  float s[Shape::n_count][4], dp[Shape::n_count][4];
  std::uint32_t weights[Shape::n_count / 2][4], ds[Shape::n_count / 2][4];
  QueryGradientAdder<Shape> adder{memory, group, {}};
  const auto sum_value_gradients = [&](const Stage& stage) {
    prim::fence_products(dv[0], weights);
    start_product<Element, DoTile>(dv[0], weights, memory.d_o(stage));
    prim::commit_products();
  };
  const auto masks_of_next = [&] {
    const Run& queries = p.queries[p.visits[next.tile.visit].other].run;
    TileMasks<Shape::n_count> masks(p, next.tile, keys, place.block.row_begin, queries);
    if constexpr (Shape::wants_dq) masks.hide_rows_past_end(place.block.row_begin, Shape::tile.rows, keys);
    return masks;
  };
  auto masks = masks_of_next();
  prim::wait_for_phase(memory.keys_filled, 0);
  for (int tile = 0; next.valid(); ++tile) {
    const Stage stage(tile);
    stage.await_filled(memory.filled);
    prim::fence_products(s, dp);
    start_product_of_rows<Element, KTile, QTile, Shape::head_dim>(s, memory.k, 64 * group, memory.q(stage));
    prim::commit_products();
    start_product_of_rows<Element, typename Shape::VTile, DoTile, Shape::value_dim>(dp, memory.v, 64 * group,
                                                                                    memory.d_o(stage));
    prim::commit_products();
    prim::wait_for_products<1>(s);
    weigh_columns<Shape>(s, memory.lse(stage), unit, masks);
    round_to_operand<Element>(weights, s);
    if constexpr (Shape::dv_before_ds) sum_value_gradients(stage);
    prim::wait_for_products<Shape::dv_before_ds ? 1 : 0>(dp);
    differentiate<Shape>(dp, s, memory.delta(stage));
    round_to_operand<Element>(ds, dp);
    if constexpr (!Shape::dv_before_ds) sum_value_gradients(stage);
    if constexpr (Shape::wants_dq) {
      constexpr int shared_barrier = 1;
      share_scores<Shape>(ds, memory.ds(stage));
      prim::fence_proxy();
      prim::barrier_sync(shared_barrier, Shape::consumers);
      adder.start(stage);
      prim::commit_products();
    }
    prim::fence_products(dk[0], ds);
    start_product<Element, QTile>(dk[0], ds, memory.q(stage));
    prim::commit_products();
    if constexpr (Shape::wants_dq) {
      prim::wait_for_products<1>(dv[0], adder.dq);
      adder.add(p.query_maps, p.visits[next.tile.visit].other, next.tile.column,
                place.batch * p.heads.q_count + next.head, p.scale);
    }
    next.advance(p, place.block, Shape::tile.columns);
    if (next.valid()) masks = masks_of_next();
    prim::wait_for_products<0>(dv[0], dk[0]);
    if (leads_warp) prim::arrive(stage.of(memory.emptied));
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
  float dk[1][Shape::QTile::pieces][4], dv[1][Shape::DoTile::pieces][4];
  clear(dk);
  clear(dv);
  differentiate_tiles<Shape>(dk, dv, p, place, key.run, memory, group);
  const std::int64_t head_row = first_row(place.batch, p.heads.kv_count, place.head, key.run);
  for_each_row<1>(place.block.row_begin, key.run.count, [&](int, int half, std::int64_t row) {
    float* const dk_row = key.dk + (head_row + row) * p.head_dim + column_of();
    store_row(dk_row, dk[0], half, p.head_dim, p.scale, key.carry);
    float* const dv_row = key.dv + (head_row + row) * p.value_dim + column_of();
    store_row(dv_row, dv[0], half, p.value_dim, 1.0f, key.carry);
  });
}

template <class Shape>
int launch_hopper_gradients(const AttendParams& params, unsigned grid, Stream stream) {
  return prim::launch(hopper_gradients<Shape>, {grid, Shape::threads, Shape::shared_bytes}, stream, params);
}

}  // namespace distattn::kernels::cuda
