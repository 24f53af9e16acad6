#pragma once
/// One panel of queries against a block of keys, by products of vectors.

#include "kernels/vector/attend_scratch.hpp"
#include "kernels/vector/packing.hpp"
#include "kernels/vector/product.hpp"
#include "kernels/vector/softmax.hpp"
#include "kernels/vector/upcoming.hpp"
#include "kernels/vector/visible.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// Widens and packs keys [begin, end) of the block of keys that starts at `key`, which lie one behind the other; begin
/// is a multiple of tile_rows. Returns whether all values are finite.
inline bool pack_run(const AttendBlock& block, const AttendPass& pass, int key, int begin, int end,
                     const AttendScratch& scratch) {
  const int count = end - begin;
  const auto factor = factor_of<float>(block.scores);
  const HeadRows<const float> k =
      operand_rows(keys_from(pass.k, block.dtype, begin), block.dtype, count, block.head_dim, scratch.widened);
  for (int j = 0; j < count; j += tile_rows) {
    pack_keys_transposed<tile_rows>({k.data + j * k.stride, k.stride}, smaller(tile_rows, count - j), block.head_dim,
                                    factor, scratch.shared,
                                    scratch.keys + (begin - key + j) * words_of(block.head_dim));
  }
  return pack_terms(keys_from(pass.v, block.dtype, begin), block.dtype, count, count, block.value_dim,
                    scratch.values.from(words_of(begin - key)), scratch.widened);
}

/// Nothing is to be done once all runs of a block are packed, nor is anything left of a panel.
inline void finish_keys(const AttendBlock&, int, int, int, const AttendScratch&) {}
struct Pending {};
inline void finish_panels(Pending&) {}

/// Scores of one tile of keys against `Vectors` vectors of a panel from vector `from` on; what a query does not see is
/// −∞, unless `all` is seen. `shift` is in every product of a query. Raises `top` to the largest.
template <int Vectors, class Map, class Bias>
DISTATTN_INLINE void score_tile(const Map& map, const Bias& bias, int head_dim, const float* tile, const float* queries,
                                const PanelKeys& keys, bool all, int from, int key, const float* shift, float* scores,
                                float* top) {
  Vector largest[Vectors];
  product<tile_rows, Vectors, 1, tile_rows, panel_width>(
      words_of(head_dim), tile, queries + from * lanes, [](int, int) { return Vector(0.f); },
      [&](int i, int v, Vector sum) {
        const Vector product = scored_product(sum, map.factor(), load(shift + (from + v) * lanes));
        const Vector score = bias.at_queries(map.score(product), (from + v) * lanes, key + i);
        // Loaded no earlier: where there are 16 registers, the product takes them all.
        largest[v] = larger(score, i == 0 ? load(top + (from + v) * lanes) : largest[v]);
        store(scores + i * panel_width + (from + v) * lanes, score);
      });
  for (int v = from; v < from + Vectors; ++v) {
    if (!all) largest[v - from] = hide(keys, v, key, scores + v * lanes, load(top + v * lanes));
    store(top + v * lanes, largest[v - from]);
  }
}

/// O = rescale·O + P·V for keys [first, last) of the block of keys.
inline void add_values(const AttendBlock& block, const PanelKeys& keys, int row, int block_key, int first, int last,
                       bool finite, const float* rescale, const AttendScratch& scratch) {
  Range ranges[panel_width / sum_rows];
  for (int i = 0; i < panel_width / sum_rows; ++i) {
    const Range seen = keys.sum[i].within(first, last);
    ranges[i] = whole_words({seen.from - block_key, seen.to - block_key});
  }
  const RowSums<1, panel_width> sums{.ranges = ranges,
                                     .count = panel_width,
                                     .dim = block.value_dim,
                                     .coefficients = scratch.scores,
                                     .terms = scratch.values,
                                     .into = scratch.output.from(row)};
  // Whether the panel's own values are finite: results do not depend on what else is in the block.
  const bool harmless = finite || keys.panel.all(first, last - first) ||
                        all_finite(sums.terms.from(words_of(first - block_key)), last - first, block.value_dim);
  add_terms(
      sums, harmless, [&](int query, int key) { return keys.sees(query, block_key + key); },
      [&](int query, auto before) { return before * rescale[query]; });
}

/// One panel of queries against keys [first, last) of the block of packed keys that starts at `block_key`.
template <class Map, class Bias>
inline void attend_panel(const Map& map, const Bias& bias, const AttendBlock& block, const AttendPass& pass,
                         const PanelKeys& keys, int row, int block_key, int first, int last, bool finite,
                         const AttendScratch& scratch, Upcoming& next, Pending&) {
  const float* queries = scratch.queries + row * words_of(block.head_dim);
  alignas(64) float top[panel_width];
  for (int v = 0; v < tile_vectors; ++v) store(top + v * lanes, minus_infinity);
  for (int j = (first - block_key) / tile_rows * tile_rows; j < last - block_key; j += tile_rows) {
    next.keys.some();
    next.values.some();
    float* scores = scratch.scores + j * panel_width;
    const int key = block_key + j;
    const bool all = keys.panel.all(key, tile_rows);
    visit_tile<panel_width>(all, keys.seeing(key, tile_rows), scores, minus_infinity, [&]<int Vectors>(int from) {
      score_tile<Vectors>(map, bias, block.head_dim, scratch.keys + j * words_of(block.head_dim), queries, keys, all,
                          from, key, scratch.shift + row, scores, top);
    });
  }
  alignas(64) float rescale[panel_width];
  const int from = first - block_key, to = last - block_key;
  float* const scores = scratch.scores + from * panel_width;
  float* const coefficients = scratch.scores + words_of(from) * panel_width;
  softmax(scores, coefficients, to - from, top, row, scratch, rescale);
  if (block.dropout.limit != 0) {
    drop_weights(Drop(block.dropout, {nullptr, scratch.positions + row, pass.positions}), scratch.scores, block_key,
                 first, last);
  }
  add_values(block, keys, row, block_key, first, last, finite, rescale, scratch);
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
