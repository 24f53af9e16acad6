#pragma once
/// Gradients on Hopper where heads are too wide for a warpgroup to sum both dK and dV: one of two weighs and
/// sums dV, and hands its weights to the other, which sums dK. Both multiply as much. dQ, if wanted, is added by both,
/// each some of its columns, while the next tile's first products are on their way.

#include "kernels/cuda/hopper/query_addition.cuh"

namespace distattn::kernels::cuda {

/// A block's threads and shared memory: blocks own 64 keys.
template <class Element_, int head_dim_, int value_dim_, int queries, bool wants_dq_, class Map_ = LinearScores>
struct HopperWideGradientsShape
    : QueryAdditionShape<KeyBlockShape<Element_, head_dim_, value_dim_, 64, queries, Map_>, wants_dq_> {
  using Base = QueryAdditionShape<KeyBlockShape<Element_, head_dim_, value_dim_, 64, queries, Map_>, wants_dq_>;
  static_assert(!wants_dq_ || queries == 64);  // what is added at a time
  static constexpr int weights_bytes = 64 * queries * 4;
  static constexpr int own_bytes = 2 * weights_bytes + Base::addition_bytes;
  static constexpr int shared_bytes = Base::common_bytes + own_bytes + 4 * 8;
  static_assert(shared_bytes <= most_shared_bytes);
};

/// Weights pass through two buffers from a thread of the first warpgroup to that of the second which needs them, dS
/// through as many from the second warpgroup to the products of both.
template <class Shape>
struct HopperWideGradientsMemory : KeyBlockMemory<Shape> {
  QueryAdditionMemory<Shape> addition;
  std::uint32_t weights_filled, ds_filled;  ///< two barriers each

  __device__ __forceinline__ explicit HopperWideGradientsMemory(std::uint32_t base)
      : KeyBlockMemory<Shape>(base),
        addition{this->own + 2 * Shape::weights_bytes},
        weights_filled(this->end),
        ds_filled(weights_filled + 16) {}

  __device__ __forceinline__ void init_barriers() const {
    for (std::uint32_t stage = 0; stage < 2; ++stage) {
      prim::init_barrier(weights_filled + stage * 8, 128 / 32);
      prim::init_barrier(ds_filled + stage * 8, 128 / 32);
    }
    KeyBlockMemory<Shape>::init_barriers();
  }

  /// The buffer is empty: the tile's queries came after the second warpgroup had given back those that it was for last.
  __device__ __forceinline__ void hand_over(const float (&weights)[Shape::n_count][4], const Stage& stage) const {
    for_each_pair([&](std::uint32_t offset, int n, int i) {
      prim::store_shared(buffer(stage) + offset, Pair{weights[n][i], weights[n][i + 1]});
    });
    __syncwarp();
    if (threadIdx.x % 32 == 0) prim::arrive(stage.of(weights_filled));
  }
  __device__ __forceinline__ void take_over(float (&weights)[Shape::n_count][4], const Stage& stage) const {
    stage.await_filled(weights_filled);
    for_each_pair([&](std::uint32_t offset, int n, int i) {
      const Pair pair = prim::load_shared<Pair>(buffer(stage) + offset);
      weights[n][i] = pair.x;
      weights[n][i + 1] = pair.y;
    });
  }

 private:
  __device__ __forceinline__ std::uint32_t buffer(const Stage& stage) const {
    return this->own + stage.index * Shape::weights_bytes;
  }
  /// Calls visit(offset, n, i) for the values i and i+1 of each piece n: threads side by side lie side by side.
  template <class Visitor>
  __device__ static __forceinline__ void for_each_pair(Visitor visit) {
    DISTATTN_UNROLL
    for (int n = 0; n < Shape::n_count; ++n) {
      DISTATTN_UNROLL
      for (int i = 0; i < 4; i += 2) visit(((2 * n + i / 2) * 128 + threadIdx.x % 128) * 8, n, i);
    }
  }
};

/// A warpgroup's columns of the dQ of tiles, one tile after the other. The last tile is added by finish().
template <class Shape, int group>
class WideQueryGradients {
 public:
  __device__ __forceinline__ WideQueryGradients(const AttendParams& p, const BlockPlace& place,
                                                const HopperWideGradientsMemory<Shape>& memory)
      : p_(p),
        place_(place),
        memory_(memory),
        at_(p, place),
        adder_{memory.addition, memory.k, group, first / Shape::dq_box_columns, {}} {}

  /// The tile before `tile`, which is awaited; with it whatever the warpgroup multiplies.
  __device__ __forceinline__ void add_before(int tile) {
    if constexpr (Shape::wants_dq) {
      if (tile == 0) return;
      const Stage stage(tile - 1);
      stage.await_filled(memory_.ds_filled);
      constexpr typename Adder::Part part{0, first};
      adder_.start(part, stage);
      prim::commit_products();
      adder_.await_boxes();
      prim::wait_for_products<0>(adder_.dq);
      adder_.add(part, p_, place_, at_);
      at_.advance(p_, place_.block, Shape::tile.columns);
    }
  }
  __device__ __forceinline__ void finish(int tiles) {
    if constexpr (Shape::wants_dq) {
      add_before(tiles);
      prim::wait_for_stores<0>();
    }
  }
  /// The second warpgroup: what products take next. The buffer is empty: the first hands over a tile's weights after it
  /// has added all dQ but that of the tile before.
  __device__ __forceinline__ void share(const std::uint32_t (&ds)[Shape::n_count / 2][4], const Stage& stage) const {
    if constexpr (Shape::wants_dq) {
      share_scores<Shape, 64>(ds, memory_.addition.ds(stage));
      prim::fence_proxy();
      __syncwarp();
      if (threadIdx.x % 32 == 0) prim::arrive(stage.of(memory_.ds_filled));
    }
  }

 private:
  static constexpr int of_first = (Shape::KTile::panels + 1) / 2 * 64;  ///< columns
  static constexpr int first = group == 0 ? 0 : of_first;
  using Adder = QueryGradientAdder<Shape, group == 0 ? of_first : Shape::KTile::panels * 64 - of_first>;

  const AttendParams& p_;
  const BlockPlace& place_;
  const HopperWideGradientsMemory<Shape>& memory_;
  HeadTileCursor at_;
  Adder adder_;
};

/// Of a tile of queries; row_of()'s first is `row_begin`.
template <class Shape>
__device__ __forceinline__ ColumnTerms<Shape> terms_of_keys(const AttendParams& p, const BlockPlace& place,
                                                            std::int32_t row_begin, const HeadTileCursor& at) {
  return {p,
          {place.batch, at.head, at.tile.column},
          p.keys[place.block.own].run,
          row_begin,
          p.queries[p.visits[at.tile.visit].other].run};
}

/// The first warpgroup: the weights of 64 keys in every tile of queries, and dV.
template <class Shape>
__device__ __forceinline__ void sum_value_gradients(float (&dv)[1][Shape::DoTile::pieces][4], const AttendParams& p,
                                                    const BlockPlace& place, const Run& keys,
                                                    const HopperWideGradientsMemory<Shape>& memory) {
  using Element = typename Shape::Element;
  using Map = typename Shape::Map;
  HeadTileCursor next(p, place);
  if (!next.valid()) return;
  float s[Shape::n_count][4];
  std::uint32_t weights[Shape::n_count / 2][4];
  WideQueryGradients<Shape, 0> query_gradients(p, place, memory);
  const bool rows_past_end = counts_rows_past_end<Shape>(place, keys);
  prim::wait_for_phase(memory.keys_filled, 0);
  int tile = 0;
  for (; next.valid(); ++tile) {
    const Stage stage(tile);
    const HeadTileCursor at = next;
    next.advance(p, place.block, Shape::tile.columns);
    stage.await_filled(memory.filled);
    prim::fence_products(s);
    start_product_of_rows<Element, typename Shape::KTile, typename Shape::QTile, Shape::head_dim>(s, memory.k, 0,
                                                                                                  memory.q(stage));
    prim::commit_products();
    prim::wait_for_products<1>(dv[0]);
    if (threadIdx.x % 32 == 0 && tile > 0) prim::arrive(Stage(tile - 1).of(memory.emptied));
    query_gradients.add_before(tile);
    const auto masks = masks_of_keys<Shape>(p, place, keys, rows_past_end, at.tile);
    const auto terms = terms_of_keys<Shape>(p, place, place.block.row_begin, at);
    const ColumnStatistics<Quad, Shape::n_count> lse(memory.lse(stage));
    prim::wait_for_products<0>(s);
    if constexpr (Map::is_linear) {
      weigh_columns<Shape>(s, 0, Shape::n_count, lse, Map(p), Map(p).unit(), masks);
      memory.hand_over(s, stage);
      round_to_operand<Element>(weights, s);
    } else {
      weigh_and_round_columns<Shape>(s, weights, lse, Map(p), masks, terms);
      memory.hand_over(s, stage);
    }
    prim::fence_products(dv[0], weights);
    start_product<Element, typename Shape::DoTile>(dv[0], weights, memory.d_o(stage));
    prim::commit_products();
  }
  query_gradients.finish(tile);
  prim::wait_for_products<0>(dv[0]);
}

/// The second warpgroup: dK of the same keys.
template <class Shape>
__device__ __forceinline__ void sum_key_gradients(float (&dk)[1][Shape::QTile::pieces][4], const AttendParams& p,
                                                  const BlockPlace& place,
                                                  const HopperWideGradientsMemory<Shape>& memory) {
  using Element = typename Shape::Element;
  HeadTileCursor next(p, place);
  if (!next.valid()) return;
  float dp[Shape::n_count][4], weights[Shape::n_count][4];
  std::uint32_t ds[Shape::n_count / 2][4];
  WideQueryGradients<Shape, 1> query_gradients(p, place, memory);
  prim::wait_for_phase(memory.keys_filled, 0);
  int tile = 0;
  for (; next.valid(); ++tile) {
    const Stage stage(tile);
    const auto terms = terms_of_keys<Shape>(p, place, place.block.row_begin - 64, next);
    next.advance(p, place.block, Shape::tile.columns);
    stage.await_filled(memory.filled);
    prim::fence_products(dp);
    start_product_of_rows<Element, typename Shape::VTile, typename Shape::DoTile, Shape::value_dim>(dp, memory.v, 0,
                                                                                                    memory.d_o(stage));
    prim::commit_products();
    prim::wait_for_products<1>(dk[0]);
    if (threadIdx.x % 32 == 0 && tile > 0) prim::arrive(Stage(tile - 1).of(memory.emptied));
    query_gradients.add_before(tile);
    const ColumnStatistics<Pair, Shape::n_count> delta(memory.delta(stage));
    memory.take_over(weights, stage);
    prim::wait_for_products<0>(dp);
    differentiate<Shape>(dp, weights, delta,
                         [&](float of_weight, int n, int i) { return terms.kept(of_weight, 0, n, i); });
    round_to_operand<Element>(ds, dp);
    query_gradients.share(ds, stage);
    prim::fence_products(dk[0], ds);
    start_product<Element, typename Shape::QTile>(dk[0], ds, memory.q(stage));
    prim::commit_products();
  }
  query_gradients.finish(tile);
  prim::wait_for_products<0>(dk[0]);
}

template <class Shape>
__global__ void __launch_bounds__(Shape::threads, 1) hopper_wide_gradients(const __grid_constant__ AttendParams p) {
  if (prim::any_thread(prim::raised(p.stop))) return;
  DISTATTN_SHARED_MEMORY(bytes);
  const HopperWideGradientsMemory<Shape> memory(prim::shared_address(bytes));
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
  if (group == 0) {
    float dv[1][Shape::DoTile::pieces][4];
    clear(dv);
    sum_value_gradients<Shape>(dv, p, place, key.run, memory);
    for_each_row<1>(place.block.row_begin, key.run.count, [&](int, int half, std::int64_t row) {
      float* const into = key.dv + (head_row + row) * p.value_dim + column_of();
      store_row(into, dv[0], half, p.value_dim, 1.0f, key.carry);
    });
  } else {
    float dk[1][Shape::QTile::pieces][4];
    clear(dk);
    sum_key_gradients<Shape>(dk, p, place, memory);
    for_each_row<1>(place.block.row_begin - 64, key.run.count, [&](int, int half, std::int64_t row) {
      float* const into = key.dk + (head_row + row) * p.head_dim + column_of();
      store_row(into, dk[0], half, p.head_dim, typename Shape::Map(p).factor(), key.carry);
    });
  }
}

template <class Shape>
int launch_hopper_wide_gradients(const AttendParams& params, unsigned grid, Stream stream) {
  return prim::launch(hopper_wide_gradients<Shape>, {grid, Shape::threads, Shape::shared_bytes}, stream, params);
}

}  // namespace distattn::kernels::cuda
