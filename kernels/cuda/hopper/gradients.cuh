#pragma once
/// Gradients on Hopper: blocks own keys of one key head and visit the queries of its query heads. Products
/// are taken transposed, keys by queries, so that weights and their gradients pass from one to the next in registers.
/// dK and dV stay with the block; dQ, if wanted, is added to its accumulator by the copy engine, in any order.

#include "kernels/cuda/hopper/query_addition.cuh"

namespace distattn::kernels::cuda {

/// When dV is multiplied, from most to fewest registers: while dS is made of the same weights; one half while the other
/// is weighed, and that while dS is made; while dS is shared.
enum class DvOrder : std::uint8_t { before_ds, in_halves, after_ds };

/// That for which there are registers. Where warpgroups do not wait for each other, they fill each other's gaps.
constexpr DvOrder usual_dv_order(int dim, bool wants_dq) {
  if (dim > 64) return DvOrder::before_ds;
  return wants_dq ? DvOrder::in_halves : DvOrder::after_ds;
}

/// A block's threads and shared memory: each warpgroup that multiplies has 64 keys. head_dim and value_dim are `dim`,
/// the padding of the real ones.
template <class Element_, int dim, bool wants_dq_, DvOrder dv_order_ = usual_dv_order(dim, wants_dq_)>
struct HopperGradientsShape
    : QueryAdditionShape<KeyBlockShape<Element_, dim, dim, 128, dim <= 64 ? 128 : 64>, wants_dq_> {
  using Base = QueryAdditionShape<KeyBlockShape<Element_, dim, dim, 128, dim <= 64 ? 128 : 64>, wants_dq_>;
  static_assert(Base::Map::is_linear);  // there is no register for more
  static constexpr DvOrder dv_order = dv_order_;
  static constexpr int dv_parts = dv_order == DvOrder::in_halves ? 2 : 1;
  static constexpr int pieces_of_part = Base::n_count / dv_parts;  ///< of weights
  // Each warpgroup adds 64 × 64 of a tile's dQ: 64 of the rows, or 64 of the columns.
  static_assert(Base::tile.columns * Base::KTile::panels == 128);
  static constexpr bool dq_by_rows = Base::tile.columns > 64;
  static constexpr int own_bytes = Base::addition_bytes;
  static constexpr int shared_bytes = Base::common_bytes + own_bytes;
  static_assert(shared_bytes <= most_shared_bytes);
};

/// A part of a tile's weights, as the left operand of the product that adds to dV.
template <class Shape>
using WeightsPart = std::uint32_t[Shape::pieces_of_part / 2][4];

template <class Shape>
__device__ __forceinline__ void start_value_gradients(float (&dv)[Shape::DoTile::pieces][4],
                                                      WeightsPart<Shape>& weights, const KeyBlockMemory<Shape>& memory,
                                                      const Stage& stage, int part) {
  prim::fence_products(dv, weights);
  start_product<typename Shape::Element, typename Shape::DoTile>(dv, weights, memory.d_o(stage),
                                                                 8 * Shape::pieces_of_part * part);
  prim::commit_products();
}

/// From scores, the newest products but one, to weights. dV is started if its turn is before dS.
template <class Shape>
__device__ __forceinline__ void weigh_tile(float (&s)[Shape::n_count][4], float (&dp)[Shape::n_count][4],
                                           float (&dv)[Shape::DoTile::pieces][4], WeightsPart<Shape>& weights,
                                           const typename Shape::Map& map, float unit,
                                           const TileMasks<Shape::n_count>& masks, const KeyBlockMemory<Shape>& memory,
                                           const Stage& stage) {
  constexpr int pieces = Shape::pieces_of_part;
  const ColumnStatistics<Quad, 2> lse(memory.lse(stage));
  prim::wait_for_products<1>(s);
  DISTATTN_UNROLL
  for (int part = 0; part < Shape::dv_parts; ++part) {
    weigh_columns<Shape>(s, pieces * part, pieces, lse, map, unit, masks);
    if (part > 0) prim::wait_for_products<0>(dp, dv);  // the half before reads its weights until then
    round_to_operand<typename Shape::Element>(weights, s, pieces * part);
    if constexpr (Shape::dv_order != DvOrder::after_ds) start_value_gradients<Shape>(dv, weights, memory, stage, part);
  }
}

/// A warpgroup's 64 keys against every tile of queries. Something is being multiplied meanwhile: dP while it weighs, dV
/// while it differentiates, dK while it hands on dQ.
template <class Shape>
__device__ __forceinline__ void differentiate_tiles(float (&dk)[1][Shape::QTile::pieces][4],
                                                    float (&dv)[1][Shape::DoTile::pieces][4], const AttendParams& p,
                                                    const BlockPlace& place, const Run& keys,
                                                    const KeyBlockMemory<Shape>& memory, int group) {
  using Element = typename Shape::Element;
  using KTile = typename Shape::KTile;
  using QTile = typename Shape::QTile;
  using DoTile = typename Shape::DoTile;
  HeadTileCursor next(p, place);
  if (!next.valid()) return;
  const typename Shape::Map map(p);
  const float unit = map.unit();
  const bool leads_warp = threadIdx.x % 32 == 0;
  float s[Shape::n_count][4], dp[Shape::n_count][4];
  WeightsPart<Shape> weights;
  std::uint32_t ds[Shape::n_count / 2][4];
  using Adder = QueryGradientAdder<Shape>;
  Adder adder{{memory.own}, memory.k, group, group * Adder::boxes, {}};
  const typename Adder::Part dq_part{Shape::dq_by_rows ? 64 * group : 0, Shape::dq_by_rows ? 0 : 64 * group};
  const bool rows_past_end = counts_rows_past_end<Shape>(place, keys);
  prim::wait_for_phase(memory.keys_filled, 0);
  Stage stage(0);
  stage.await_filled(memory.filled);
  for (int tile = 0; next.valid(); ++tile) {
    prim::fence_products(s, dp);
    start_product_of_rows<Element, KTile, QTile, Shape::head_dim>(s, memory.k, 64 * group, memory.q(stage));
    prim::commit_products();
    start_product_of_rows<Element, typename Shape::VTile, DoTile, Shape::value_dim>(dp, memory.v, 64 * group,
                                                                                    memory.d_o(stage));
    prim::commit_products();
    if (leads_warp && tile > 0) prim::arrive(Stage(tile - 1).of(memory.emptied));
    const auto masks = masks_of_keys<Shape>(p, place, keys, rows_past_end, next.tile);  // while scores are multiplied
    weigh_tile<Shape>(s, dp, dv[0], weights, map, unit, masks, memory, stage);
    const ColumnStatistics<Pair, 4> delta(memory.delta(stage));
    prim::wait_for_products<Shape::dv_order == DvOrder::after_ds ? 0 : 1>(dp);
    differentiate<Shape>(dp, s, delta, [](float of_weight, int, int) { return of_weight; });
    round_to_operand<Element>(ds, dp);
    if constexpr (Shape::dv_order == DvOrder::after_ds) {
      start_value_gradients<Shape>(dv[0], weights, memory, stage, 0);
    }
    if constexpr (Shape::wants_dq) {
      constexpr int shared_barrier = 1;
      share_scores<Shape>(ds, adder.memory.ds(stage));
      prim::fence_proxy();
      prim::barrier_sync(shared_barrier, Shape::consumers);
      adder.start(dq_part, stage);
      prim::commit_products();
    }
    prim::fence_products(dk[0], ds);
    start_product<Element, QTile>(dk[0], ds, memory.q(stage));
    prim::commit_products();
    if constexpr (Shape::wants_dq) {
      adder.await_boxes();
      prim::wait_for_products<1>(dv[0], adder.dq);
      adder.add(dq_part, p, place, next);
    }
    next.advance(p, place.block, Shape::tile.columns);
    if (next.valid()) {
      stage = Stage(tile + 1);
      stage.await_filled(memory.filled);
    }
    prim::wait_for_products<0>(dv[0], dk[0]);
  }
  if constexpr (Shape::wants_dq) prim::wait_for_stores<0>();
}

template <class Shape>
__global__ void __launch_bounds__(Shape::threads, 1) hopper_gradients(const __grid_constant__ AttendParams p) {
  if (prim::any_thread(prim::raised(p.stop))) return;
  DISTATTN_SHARED_MEMORY(bytes);
  const KeyBlockMemory<Shape> memory(prim::shared_address(bytes));
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
    store_row(dk_row, dk[0], half, p.head_dim, typename Shape::Map(p).factor(), key.carry);
    float* const dv_row = key.dv + (head_row + row) * p.value_dim + column_of();
    store_row(dv_row, dv[0], half, p.value_dim, 1.0f, key.carry);
  });
}

template <class Shape>
int launch_hopper_gradients(const AttendParams& params, unsigned grid, Stream stream) {
  return prim::launch(hopper_gradients<Shape>, {grid, Shape::threads, Shape::shared_bytes}, stream, params);
}

}  // namespace distattn::kernels::cuda
