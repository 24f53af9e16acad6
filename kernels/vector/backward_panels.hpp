#pragma once
/// Products of a backward pass, by products of vectors.

#include "kernels/vector/backward_keys.hpp"
#include "kernels/vector/backward_scratch.hpp"
#include "kernels/vector/product.hpp"
#include "kernels/vector/vector_kernels.hpp"
#include "kernels/vector/visible.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// Packs the rows of a block, which as broadcast operands and as terms of sums are not the same in words of pairs.
inline void pack_block(const BackwardChunk& chunk, const BackwardBlock& block, int rows,
                       const BackwardScratch& scratch) {
  const auto times_unit = [&](int i, int, Vector some) { return pairs ? some : some * scratch.units[i]; };
  Known& known = *scratch.known;
  known.finite_queries =
      pack_terms(block.q, chunk.dtype, block.rows, rows, chunk.head_dim, scratch.query_terms, scratch.widened);
  known.finite_d_outputs = pack_terms(block.d_o, chunk.dtype, block.rows, rows, chunk.value_dim, scratch.d_output_terms,
                                      scratch.widened, times_unit);
  if constexpr (!pairs) return;
  const auto pack_words = [&](const HeadRows<const void>& from, int dim, const RowPanels& into) {
    pack_rows(operand_rows(from, chunk.dtype, block.rows, dim, scratch.widened), block.rows, rows, words_of(dim), into);
  };
  pack_words(block.q, chunk.head_dim, scratch.queries);
  pack_words(block.d_o, chunk.value_dim, scratch.d_outputs);
  if (!block.few) return;
  pack_rows(widened(block.q, chunk.dtype, block.rows, chunk.head_dim, scratch.widened), block.rows, block.rows,
            chunk.head_dim, scratch.few_rows);
}

/// Rows of a block against keys [key, end): into[row][j] = make(row, j, at, Σ_x rows[row][x] · panels[x][j]), 0 where
/// the row does not see the key, in whole panels of keys. `at` is where a vector of keys, from j on, lies in `into`.
template <class Make>
DISTATTN_INLINE void score(const BlockKeys& keys, int key, int end, int dim, const RowPanels& rows, const float* panels,
                           float* into, NextRows& next, Make make) {
  for (int j = key; j < end; j += panel_width) {
    for (int row = 0; row < keys.rows; row += tile_rows) {
      next.some();
      const SeenKeys& seen = keys.tile[row / tile_rows];
      const int at = row * backward_keys + j - key;
      const Range some = seen.seen_vectors(j);
      const bool all = seen.all(j, panel_width);
      visit_tile<backward_keys>(all, some, into + at, 0.f, [&]<int Vectors>(int from) {
        const auto place = [&](int i, int v) { return at + i * backward_keys + (from + v) * lanes; };
        product<tile_rows, Vectors, sum_width, 1, panel_width>(
            words_of(dim), rows.at(row, 0), panels + j * words_of(dim) + from * lanes,
            [](int, int) { return Vector(0.f); },
            [&](int i, int v, Vector sum) {
              store(into + place(i, v), make(row + i, j + (from + v) * lanes, place(i, v), sum));
            },
            sum_width, rows.panel_stride());
      });
      if (!all) hide(keys, row, j, some, into + at);
    }
  }
}

/// P and dS of `count` keys, whole panels of them, as coefficients of sums.
inline void join_coefficients(int rows, int count, const BackwardScratch& scratch) {
  if constexpr (!pairs) return;
  for (int i = 0; i < rows; ++i) {
    const float* const from = scratch.d_scores + i * backward_keys;
    float* const into = scratch.d_score_rows + i * d_score_row;
    int j = 0;
    for (; j + 2 * lanes <= count; j += 2 * lanes) {
      store(into + words_of(j), neighbours(load(from + j), load(from + j + lanes)));
    }
    if (j < count) store(into + words_of(j), neighbours(load(from + j), Vector(0.f)));
  }
  for (float* const coefficients : {scratch.weights, scratch.d_scores}) {
    for (int i = 0; i < rows; i += in_word) {
      for (int j = 0; j < count; j += lanes) {
        const float* const from = coefficients + i * backward_keys + j;
        store(coefficients + words_of(i) * backward_keys + j, joined(load(from), load(from + backward_keys)));
      }
    }
  }
}

/// What follows from P and dS of keys [key, end).
inline void add_gradients(const BackwardChunk& chunk, const BlockKeys& keys, int key, int end,
                          const BackwardScratch& scratch) {
  Range of_keys[backward_keys / sum_rows], of_queries[backward_rows / sum_rows];
  for (int j = key; j < end; j += sum_rows) {
    of_keys[(j - key) / sum_rows] = keys.seeing(j, smaller(sum_rows, end - j));
  }
  for (int i = 0; i < keys.rows / sum_rows; ++i) {
    const Range seen = keys.sum[i].within(key, end);
    of_queries[i] = whole_words({seen.from - key, seen.to - key});
  }
  const auto key_sees = [&](int j, int row) { return keys.sees(row, key + j); };
  const auto query_sees = [&](int row, int j) { return keys.sees(row, key + j); };
  const bool all = keys.block.all(key, rounded_up(end - key, in_word));
  const Known& known = *scratch.known;
  const RowSums<1, backward_keys> d_values{.ranges = of_keys,
                                           .count = end - key,
                                           .dim = chunk.value_dim,
                                           .coefficients = scratch.weights,
                                           .terms = scratch.d_output_terms,
                                           .into = scratch.d_values.from(key)};
  add_terms(d_values, all || known.finite_d_outputs, key_sees, Kept());
  const RowSums<1, backward_keys> d_keys{.ranges = of_keys,
                                         .count = end - key,
                                         .dim = chunk.head_dim,
                                         .coefficients = scratch.d_scores,
                                         .terms = scratch.query_terms,
                                         .into = scratch.d_keys.from(key)};
  add_terms(d_keys, all || known.finite_queries, key_sees, Kept());
  const RowSums<d_score_row, 1> d_queries{.ranges = of_queries,
                                          .count = keys.rows,
                                          .dim = chunk.head_dim,
                                          .coefficients = scratch.d_score_rows,
                                          .terms = scratch.key_rows.from(words_of(key)),
                                          .into = scratch.d_queries};
  add_terms(d_queries, all || known.finite_keys, query_sees, Kept());
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
