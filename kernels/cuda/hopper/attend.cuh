#pragma once
/// Forward attention on Hopper: one warpgroup keeps the copy engine busy, others multiply and weigh in turns.
/// Scheduling after FlashAttention-3 (Shah et al. 2024, §3.1–3.2): the next tile's scores are multiplied while this
/// tile's weights are on their way, and one warpgroup weighs while the other multiplies.

#include <algorithm>

#include "kernels/cuda/hopper/tiles.cuh"
#include "kernels/cuda/softmax_rows.cuh"
#include "kernels/cuda/tile_masks.cuh"

namespace distattn::kernels::cuda {

/// When a warpgroup lets the next one multiply: as soon as its own products are queued, or when its scores are there,
/// so that a tensor core that serves warpgroups in turns does not delay them.
enum class TurnEnds : std::uint8_t { at_issue, at_scores };

/// In what the kernels of one shape may differ.
struct HopperAttendTuning {
  int columns = 128;  ///< of a tile: keys
  int groups = 2;     ///< warpgroups that multiply, each 64 rows; behind them the one that copies
  int heads = 1;      ///< as in TileSize; if not 1, a warpgroup has the rows of one
  int stages = 2;     ///< tiles of keys, and as many of values, in shared memory
  /// No more thread blocks than can run at once: they prepare one place while they end another, but leave no
  /// multiprocessor to exchanges.
  bool persistent = false;
  TurnEnds turn_ends = TurnEnds::at_issue;
};

/// A block's threads and shared memory. head_dim and value_dim are the paddings of the real ones.
template <class Element_, int head_dim_, int value_dim_, HopperAttendTuning tuning_, class Map_ = LinearScores>
struct HopperAttendShape {
  using Element = Element_;
  using Map = Map_;  ///< of scores
  static constexpr HopperAttendTuning tuning = tuning_;
  static constexpr int head_dim = head_dim_, value_dim = value_dim_;
  static constexpr int m_count = 1;
  static constexpr int groups = tuning.groups, heads = tuning.heads, stages = tuning.stages;
  static constexpr int consumers = groups * 128, threads = consumers + 128;
  static constexpr TileSize tile{groups / heads * 64, tuning.columns, heads};
  static constexpr int n_count = tile.columns / 8;
  static constexpr int producer_registers = groups > 2 ? 32 : 24, consumer_registers = groups > 2 ? 160 : 240;

  using QTile = PanelTile<64, head_dim>;  ///< of a warpgroup
  using KTile = PanelTile<tile.columns, head_dim>;
  using VTile = PanelTile<tile.columns, value_dim>;
  /// Masks need no scores: they are made while these are multiplied, but before it is this warpgroup's turn in a narrow
  /// head, where exponentials take longer than products (docs/hopper.md), and where dropout's bits need the registers.
  static constexpr bool masks_before_turn = value_dim <= 64 || !Map::is_linear;
  static constexpr int barriers = 2 + 4 * stages;
  static constexpr int shared_bytes = groups * QTile::bytes + stages * (KTile::bytes + VTile::bytes) + barriers * 8;
  static_assert(shared_bytes <= most_shared_bytes && (heads == 1 || heads == groups));
};

/// The 64 rows of one head that a warpgroup has.
template <class Shape>
struct GroupRows {
  int head;
  std::int32_t begin;

  __device__ __forceinline__ GroupRows(const BlockPlace& place, int group)
      : head(place.head * Shape::heads + (Shape::heads > 1 ? group : 0)),
        begin(place.block.row_begin + (Shape::heads > 1 ? 0 : 64 * group)) {}
  /// Where row_of() counts from: it goes on from warpgroup to warpgroup.
  __device__ __forceinline__ std::int32_t origin(int group) const { return begin - 64 * group; }
};

/// Where everything lies in shared memory.
template <class Shape>
struct HopperAttendMemory {
  std::uint32_t q, k_tiles, v_tiles;
  std::uint32_t q_filled, q_emptied, k_filled, k_emptied, v_filled, v_emptied;  ///< barriers, one a stage but for q

  __device__ __forceinline__ explicit HopperAttendMemory(std::uint32_t base)
      : q(base),
        k_tiles(q + Shape::groups * Shape::QTile::bytes),
        v_tiles(k_tiles + Shape::stages * Shape::KTile::bytes),
        q_filled(v_tiles + Shape::stages * Shape::VTile::bytes),
        q_emptied(q_filled + 8),
        k_filled(q_emptied + 8),
        k_emptied(k_filled + Shape::stages * 8),
        v_filled(k_emptied + Shape::stages * 8),
        v_emptied(v_filled + Shape::stages * 8) {}

  __device__ __forceinline__ static Stage stage_of(int tile) { return Stage(tile, Shape::stages); }

  __device__ __forceinline__ std::uint32_t q_of(int group) const {
    return q + static_cast<std::uint32_t>(group * Shape::QTile::bytes);
  }
  __device__ __forceinline__ std::uint32_t k(const Stage& stage) const {
    return k_tiles + stage.index * Shape::KTile::bytes;
  }
  __device__ __forceinline__ std::uint32_t v(const Stage& stage) const {
    return v_tiles + stage.index * Shape::VTile::bytes;
  }
  __device__ __forceinline__ void init_barriers() const {
    prim::init_barrier(q_filled, 1);
    prim::init_barrier(q_emptied, Shape::consumers / 32);
    for (std::uint32_t stage = 0; stage < Shape::stages; ++stage) {
      prim::init_barrier(k_filled + stage * 8, 1);
      prim::init_barrier(v_filled + stage * 8, 1);
      prim::init_barrier(k_emptied + stage * 8, Shape::consumers / 32);
      prim::init_barrier(v_emptied + stage * 8, Shape::consumers / 32);
    }
    prim::publish_barriers();
  }
};

/// How much has gone through shared memory at the places before.
struct Passed {
  unsigned queries = 0;
  int tiles = 0;
};

/// One thread: feeds the tiles of the block's visits through the stages, keys one tile ahead of values.
template <class Shape>
__device__ __forceinline__ void feed_tiles(const AttendParams& p, const BlockPlace& place,
                                           const HopperAttendMemory<Shape>& memory, Passed& passed) {
  const int key_plane = place.batch * p.heads.kv_count + p.heads.kv_of(place.head * Shape::heads);
  TileCursor next(p.visits, place.block), behind = next;
  if (!next.valid()) return;
  const auto feed_values = [&](int tile) {
    const Stage stage = memory.stage_of(tile);
    stage.await_emptied(memory.v_emptied);
    prim::arrive_expecting(stage.of(memory.v_filled), Shape::VTile::bytes);
    Shape::VTile::load(memory.v(stage), &p.key_maps[p.visits[behind.visit].other].v, stage.of(memory.v_filled),
                       behind.column, key_plane);
    behind.advance(p.visits, Shape::tile.columns);
  };
  const TensorMap* const q = &p.query_maps[place.block.own].q;
  prim::acquire_tensor_map(q);
  prim::wait_for_phase(memory.q_emptied, (passed.queries++ & 1u) ^ 1u);
  prim::arrive_expecting(memory.q_filled, Shape::groups * Shape::QTile::bytes);
  DISTATTN_UNROLL
  for (int group = 0; group < Shape::groups; ++group) {
    const GroupRows<Shape> rows(place, group);
    Shape::QTile::load(memory.q_of(group), q, memory.q_filled, rows.begin, place.batch * p.heads.q_count + rows.head);
  }
  const int first = passed.tiles;
  int acquired = -1;
  for (; next.valid(); ++passed.tiles) {
    const Stage stage = memory.stage_of(passed.tiles);
    const int other = p.visits[next.visit].other;
    const KeyMaps& maps = p.key_maps[other];
    acquire_maps(acquired, other, maps.k, maps.v);
    stage.await_emptied(memory.k_emptied);
    prim::arrive_expecting(stage.of(memory.k_filled), Shape::KTile::bytes);
    Shape::KTile::load(memory.k(stage), &maps.k, stage.of(memory.k_filled), next.column, key_plane);
    next.advance(p.visits, Shape::tile.columns);
    if (passed.tiles > first) feed_values(passed.tiles - 1);
  }
  feed_values(passed.tiles - 1);
}

/// Turns of the warpgroups that multiply: each waits at its own barrier and lets the next one pass.
template <int groups>
struct Turns {
  static constexpr int threads = 256, first_barrier = 1;
  int group;

  /// Group 0 begins, if there are turns at all.
  __device__ __forceinline__ Turns(int group_, bool any) : group(group_) {
    if (group == groups - 1 && any) prim::barrier_arrive(first_barrier, threads);
  }
  __device__ __forceinline__ void await() const { prim::barrier_sync(first_barrier + group, threads); }
  /// Nobody waits for the turn behind the last of the last group.
  __device__ __forceinline__ void pass_on(bool last) const {
    if (group != groups - 1 || !last) prim::barrier_arrive(first_barrier + (group + 1) % groups, threads);
  }
};

/// What is known of a tile before its scores.
template <class Shape>
struct KnownOfTile {
  TileMasks<Shape::n_count> masks;
  TileTerms<typename Shape::Map, Owner::queries, Shape::n_count> terms;
};

/// A warpgroup's 64 rows against every tile of the block's visits.
template <class Shape>
__device__ __forceinline__ void attend_tiles(SoftmaxRows<Shape>& rows, const AttendParams& p, const BlockPlace& place,
                                             std::int32_t row_origin, const QuerySegment& query,
                                             const HopperAttendMemory<Shape>& memory, int group, Passed& passed,
                                             typename Shape::Map::Largest& largest) {
  using Element = typename Shape::Element;
  using Map = typename Shape::Map;
  using Known = KnownOfTile<Shape>;
  if (place.block.tiles == 0) return;
  TileCursor at(p.visits, place.block);
  int left = __shfl_sync(whole_warp, place.block.tiles, 0);  // so that ptxas counts once for the warp
  const bool leads_warp = threadIdx.x % 32 == 0;
  const float unit = Map(p).rising_unit();
  float s[1][Shape::n_count][4], rescale[1][2];
  std::uint32_t weights[Shape::n_count / 2][4];

  const auto start_scores = [&](const Stage& stage) {
    start_product_of_rows<Element, typename Shape::QTile, typename Shape::KTile, Shape::head_dim>(
        s[0], memory.q_of(group), 0, memory.k(stage));
    prim::commit_products();
  };
  const auto weigh = [&](const Stage& stage, const Known& known) {
    if (leads_warp) prim::arrive(stage.of(memory.k_emptied));
    make_levels(s, Map(p), known.masks, known.terms);
    see_levels(largest, s, p, row_origin, query.run);
    rows.weigh(s, unit, rescale);
    known.terms.drop(s);
    // The weights are made while values are multiplied: nothing else tells ptxas that this pays.
    prim::keep_before_wait(rows.sum[0][0] + rows.sum[0][1]);
  };
  const int head = GroupRows<Shape>(place, group).head;
  const auto known_and_advance = [&] {
    const Known known{{p, at, row_origin},
                      {p, {place.batch, head, at.column}, query.run, row_origin, p.keys[at.other].run}};
    at.advance(p.visits, Shape::tile.columns);
    return known;
  };
  /// Does `multiply`, and makes masks, which need no scores, while that goes on or before.
  const auto known_during = [&](auto&& multiply) {
    if constexpr (Shape::masks_before_turn) {
      const Known known = known_and_advance();
      multiply();
      return known;
    } else {
      multiply();
      return known_and_advance();
    }
  };

  const Turns<Shape::groups> turns(group, left > 1);
  Stage stage = memory.stage_of(passed.tiles++);
  const Known first_known = known_during([&] {
    prim::wait_for_phase(memory.q_filled, passed.queries++ & 1u);
    stage.await_filled(memory.k_filled);
    prim::fence_products(s[0]);
    start_scores(stage);
  });
  prim::wait_for_products<0>(s[0]);
  weigh(stage, first_known);
  rows.rescale_outputs(rescale);
  round_to_operand<Element>(weights, s[0]);
  for (--left; left > 0; --left) {
    const Stage before = stage;
    const Known known = known_during([&] {
      stage = memory.stage_of(passed.tiles++);
      stage.await_filled(memory.k_filled);
      turns.await();
      prim::fence_products(s[0]);
      start_scores(stage);
      before.await_filled(memory.v_filled);
      prim::fence_products(rows.o[0], weights);
      start_product<Element, typename Shape::VTile>(rows.o[0], weights, memory.v(before));
      prim::commit_products();
      if (Shape::tuning.turn_ends == TurnEnds::at_issue) turns.pass_on(left == 1);
    });
    prim::wait_for_products<1>(s[0]);
    if (Shape::tuning.turn_ends == TurnEnds::at_scores) turns.pass_on(left == 1);
    weigh(stage, known);
    prim::wait_for_products<0>(rows.o[0]);
    if (leads_warp) prim::arrive(before.of(memory.v_emptied));
    rows.rescale_outputs(rescale);
    round_to_operand<Element>(weights, s[0]);
  }
  if (leads_warp) prim::arrive(memory.q_emptied);
  stage.await_filled(memory.v_filled);
  prim::fence_products(rows.o[0], weights);
  start_product<Element, typename Shape::VTile>(rows.o[0], weights, memory.v(stage));
  prim::commit_products();
  prim::wait_for_products<0>(rows.o[0]);
  if (leads_warp) prim::arrive(stage.of(memory.v_emptied));
}

template <class Shape>
__global__ void __launch_bounds__(Shape::threads, 1) hopper_attend(const __grid_constant__ AttendParams p) {
  if (prim::any_thread(prim::raised(p.stop))) return;
  DISTATTN_SHARED_MEMORY(bytes);
  const HopperAttendMemory<Shape> memory(prim::shared_address(bytes));
  if (threadIdx.x == 0) memory.init_barriers();
  __syncthreads();
  const int group = warpgroup(), heads = p.heads.q_count / Shape::heads;
  Passed passed;
  PlaceCursor places(p, heads);
  if (group == Shape::groups) {
    prim::fewer_registers<Shape::producer_registers>();
    if (threadIdx.x != Shape::consumers) return;
    for (; places.valid(); places.advance()) {
      feed_tiles<Shape>(p, BlockPlace(p, heads, places.index()), memory, passed);
    }
    return;
  }
  prim::more_registers<Shape::consumer_registers>();
  for (; places.valid(); places.advance()) {
    const BlockPlace place(p, heads, places.index());
    const QuerySegment& query = p.queries[place.block.own];
    const GroupRows<Shape> mine(place, group);
    const std::int32_t origin = mine.origin(group);
    const std::int64_t head_row = first_row(place.batch, p.heads.q_count, mine.head, query.run);
    SoftmaxRows<Shape> rows;
    start_rows(rows, p, query, origin, head_row);
    typename Shape::Map::Largest largest;
    attend_tiles<Shape>(rows, p, place, origin, query, memory, group, passed, largest);
    store_rows(rows, p, query, origin, head_row);
    largest.raise(p, place.batch, mine.head);
  }
}

/// Describes what hopper_attend copies.
template <class Shape>
int describe_for_attend(const TileShape& shape, std::span<const QuerySegment> queries, std::span<QueryMaps> query_maps,
                        std::span<const KeySegment> keys, std::span<KeyMaps> key_maps) {
  constexpr BoxRows boxes{.q = Shape::QTile::rows, .keys = Shape::tile.columns};
  return describe_tensors<typename Shape::Element>(boxes, shape, queries, query_maps, keys, key_maps);
}

template <class Shape>
int launch_hopper_attend(const AttendParams& params, unsigned grid, Stream stream) {
  if (Shape::tuning.persistent) grid = std::min(grid, prim::multiprocessors());
  return prim::launch(hopper_attend<Shape>, {grid, Shape::threads, Shape::shared_bytes}, stream, params);
}

}  // namespace distattn::kernels::cuda
