#pragma once
/// Forward attention on tensor cores: FlashAttention-2's loop over key tiles, started from a carry. Values arrive while
/// scores are multiplied, the next keys while these are weighed: shared memory of one tile leaves room for two blocks.

#include "kernels/cuda/ampere/key_stage.cuh"
#include "kernels/cuda/block_place.cuh"
#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/softmax_rows.cuh"

namespace distattn::kernels::cuda {

/// How the threads of a block share its tiles. head_dim and value_dim are the paddings of the real ones.
template <class Element_, int head_dim_, int value_dim_, class Map_ = LinearScores>
struct AttendShape {
  using Element = Element_;
  using Map = Map_;  ///< of scores
  static constexpr int head_dim = head_dim_, value_dim = value_dim_;
  static constexpr bool wide = head_dim > 128 || !Map::is_linear;
  static constexpr int warps = wide ? 8 : 4;
  static constexpr int m_count = wide ? 1 : 2;  ///< a warp's rows / 16: two where registers allow, to halve loads
  static constexpr int threads = warps * 32;
  static constexpr TileSize tile{warps * m_count * 16, head_dim > 192 ? 32 : 64};
  static constexpr int n_count = tile.columns / 8;

  static constexpr int q_bytes = SharedTile<head_dim>::bytes(tile.rows);
  static constexpr int k_bytes = SharedTile<head_dim>::bytes(tile.columns);
  static constexpr int v_bytes = SharedTile<value_dim>::bytes(tile.columns);
  static constexpr int shared_bytes = q_bytes + k_bytes + v_bytes;
  /// On a multiprocessor of sm_80: 8 warps, of which some multiply while others weigh or wait.
  static constexpr int blocks = 8 / warps;
  static_assert(blocks * (shared_bytes + 1024) <= 164 * 1024);
};

template <class Shape>
__global__ void __launch_bounds__(Shape::threads, Shape::blocks) attend(const __grid_constant__ AttendParams p) {
  using Element = typename Shape::Element;
  if (prim::any_thread(prim::raised(p.stop))) return;
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t q_tile = prim::shared_address(memory);
  const std::uint32_t k_tile = q_tile + Shape::q_bytes, v_tile = k_tile + Shape::k_bytes;
  const BlockPlace place(p, p.heads.q_count);
  const QuerySegment& query = p.queries[place.block.own];
  const std::int32_t row_begin = place.block.row_begin;
  const auto head_row = [&] { return first_row(place.batch, p.heads.q_count, place.head, query.run); };

  copy_tile<Shape::tile.rows, Shape::head_dim, Shape::threads>(
      q_tile, static_cast<const Element*>(query.q) + head_row() * p.head_dim, row_begin, query.run.count, p.head_dim);
  const std::uint32_t plane = key_plane(p, place);
  TileCursor at(p.visits, place.block);
  if (at.valid()) copy_keys<Shape>(k_tile, p, at, plane);
  prim::commit_copies();

  SoftmaxRows<Shape> rows;
  start_rows(rows, p, query, row_begin, head_row());
  const int warp_row = first_row_of_warp<Shape::m_count>();
  const typename Shape::Map map(p);
  const float unit = map.rising_unit();
  typename Shape::Map::Largest largest;
  while (at.valid()) {
    // Masks need no scores: they are made while there are none to hold.
    const TileMasks<Shape::n_count, Shape::m_count> masks(p, at, row_begin);
    const TileTerms<typename Shape::Map, Owner::queries, Shape::n_count, Shape::m_count> terms(
        p, {place.batch, place.head, at.column}, query.run, row_begin, p.keys[at.other].run);
    prim::wait_for_copies<0>();
    __syncthreads();  // the keys are everybody's, and nobody still reads the values of the tile before
    copy_values<Shape>(v_tile, p, at, plane, column_part<Shape>(p, p.value_dim));
    prim::commit_copies();
    float s[Shape::m_count][Shape::n_count][4];
    clear(s);
    add_product_of_rows<Element, Shape::head_dim>(s, q_tile, warp_row, k_tile);

    prim::wait_for_copies<0>();
    __syncthreads();  // the values are everybody's, and nobody still reads the keys
    at.advance(p.visits, Shape::tile.columns);
    if (at.valid()) copy_keys<Shape>(k_tile, p, at, plane);
    prim::commit_copies();
    make_levels(s, map, masks, terms);
    see_levels(largest, s, p, row_begin, query.run);
    float rescale[Shape::m_count][2];
    rows.weigh(s, unit, rescale);
    terms.drop(s);
    rows.rescale_outputs(rescale);
    add_product<Element, Shape::value_dim>(rows.o, s, v_tile);
  }
  prim::wait_for_copies<0>();
  store_rows(rows, p, query, row_begin, head_row());
  largest.raise(p, place.batch, place.head);
}

/// Starts the kernel; returns the CUDA runtime's status.
template <class Shape>
int launch_attend(const AttendParams& params, unsigned grid, Stream stream) {
  return prim::launch(attend<Shape>, {grid, Shape::threads, Shape::shared_bytes}, stream, params);
}

}  // namespace distattn::kernels::cuda
