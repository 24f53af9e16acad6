#pragma once
/// Products of a backward pass, by products of tiles: dVᵀ = dOᵀ·P and dKᵀ = Qᵀ·dS leave keys along the lanes.

#include "kernels/vector/backward_keys.hpp"
#include "kernels/vector/backward_scratch.hpp"
#include "kernels/vector/tiles.hpp"
#include "kernels/vector/vector_kernels.hpp"
#include "kernels/vector/visible.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

inline constexpr int row_steps = backward_rows / tile_square, key_steps = backward_keys / tile_square;
static_assert(backward_rows % tile_square == 0 && backward_keys % tile_square == 0);

/// Packs the rows of a block: as left operands, as terms of sums, and these as left operands whose rows are columns.
inline void pack_block(const BackwardChunk& chunk, const BackwardBlock& block, int rows,
                       const BackwardScratch& scratch) {
  const auto pack = [&](const HeadRows<const void>& from, int dim, const RowPanels& into, const RowPanels& terms,
                        float* columns) {
    pack_left(operand_rows(from, chunk.dtype, block.rows, dim, scratch.widened), block.rows, rows, words_of(dim), 0,
              into.data, [](int, Vector words) { return words; });
    const bool finite = pack_terms(from, chunk.dtype, block.rows, rows, dim, terms, scratch.widened);
    transpose_terms(terms, words_of(rows), dim, row_steps, columns);
    return finite;
  };
  Known& known = *scratch.known;
  known.finite_queries = pack(block.q, chunk.head_dim, scratch.queries, scratch.query_terms, scratch.query_columns);
  known.finite_d_outputs =
      pack(block.d_o, chunk.value_dim, scratch.d_outputs, scratch.d_output_terms, scratch.d_output_columns);
  if (!block.few) return;
  pack_rows(widened(block.q, chunk.dtype, block.rows, chunk.head_dim, scratch.widened), block.rows, block.rows,
            chunk.head_dim, scratch.few_rows);
}

/// Rows of a block against keys [key, end): into[row][j] = make(row, j, at, Σ_x rows[row][x] · panels[x][j]), 0 where
/// the row does not see the key, in whole panels of keys. `at` is where a vector of keys, from j on, lies in `into`.
template <class Make>
DISTATTN_INLINE void score(const BlockKeys& keys, int key, int end, int dim, const RowPanels& rows, const float* panels,
                           float* into, NextRows& next, Make make) {
  alignas(64) float made[tile_square * tile_square];
  const int steps = depth_words(dim) / tile_side;
  for (int j = key; j < end; j += panel_width) {
    for (int row = 0; row < keys.rows; row += tile_square) {
      next.some();
      const SeenKeys& seen = keys.tile[row / tile_rows];
      const int first = row * backward_keys + j - key;
      const bool some = seen.some(j, panel_width);
      if (some) {
        multiply_square<panel_width, tile_square>(steps, left_row(rows.data, row, steps), panels + j * depth_words(dim),
                                                  made);
      }
      for (int i = 0; i < tile_square; ++i) {
#pragma GCC unroll 2
        for (int v = 0; v < tile_vectors; ++v) {
          const int at = first + i * backward_keys + v * lanes;
          store(into + at,
                some ? make(row + i, j + v * lanes, at, load(made + i * tile_square + v * lanes)) : Vector(0.f));
        }
      }
      if (some && !seen.all(j, panel_width)) hide(keys, row, j, {0, tile_vectors}, into + first);
    }
  }
}

/// P and dS of `count` keys, whole panels of them, as operands: both with words of rows, and dS as a left one.
inline void join_coefficients(int rows, int count, const BackwardScratch& scratch) {
  for (int i = 0; i < rows; ++i) {
    const float* const from = scratch.d_scores + i * backward_keys;
    float* into = left_row(scratch.d_score_rows, i, key_steps);
    for (int j = 0; j < count; j += tile_square, into += left_step) {
      store(into, neighbours(load(from + j), load(from + j + lanes)));
    }
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
  const bool all = keys.block.all(key, whole_terms(end - key));
  const Known& known = *scratch.known;
  const auto add_to_keys = [&](bool harmless, int dim, const float* columns, const RowPanels& terms,
                               const float* coefficients, const SumRows& sums) {
    for (int j = key; j < end; j += tile_square) {
      const Range rows = keys.seeing(j, smaller(tile_square, end - j));
      if (rows.empty()) continue;
      if (harmless) {
        add_columns<backward_keys, Reuse::soon>(
            columns + rows.from / tile_square * left_step, row_steps, (rows.to - rows.from) / tile_square,
            coefficients + words_of(rows.from) * backward_keys + j - key, dim, sums.at(j, 0),
            [](int, Vector before) { return before; }, [](int) {});
        continue;
      }
      for (int i = j; i < smaller(end, j + tile_square); ++i) {
        for (int row = rows.from; row < rows.to; ++row) {
          if (!keys.sees(row, i)) continue;
          const float coefficient = element_of(coefficients + words_of(row) * backward_keys + i - key, row);
          for (int x = 0; x < dim; ++x) *sums.at(i, x) += coefficient * element_of(terms.at(words_of(row), x), row);
        }
      }
    }
  };
  add_to_keys(all || known.finite_d_outputs, chunk.value_dim, scratch.d_output_columns, scratch.d_output_terms,
              scratch.weights, scratch.d_values);
  add_to_keys(all || known.finite_queries, chunk.head_dim, scratch.query_columns, scratch.query_terms, scratch.d_scores,
              scratch.d_keys);
  const bool harmless = all || known.finite_keys;
  for (int row = 0; row < keys.rows; row += tile_square) {
    const Range seen = keys.tile[row / tile_rows].within(key, end);
    const Range some = whole_words({seen.from - key, seen.to - key});
    if (some.empty()) continue;
    const float* const left = left_row(scratch.d_score_rows, row, key_steps) + some.from / tile_square * left_step;
    if (harmless) {
      add_rows_of(left, (some.to - some.from) / tile_square, scratch.key_rows.from(words_of(key + some.from)),
                  chunk.head_dim, scratch.d_queries.from(row));
      continue;
    }
    for (int i = row; i < row + tile_square; ++i) {
      for (int j = some.from; j < some.to; ++j) {
        if (!keys.sees(i, key + j)) continue;
        const float* const word = left_row(scratch.d_score_rows, i, key_steps) + j / tile_square * left_step;
        const float coefficient = element_of(word + words_of(j % tile_square), j);
        for (int x = 0; x < chunk.head_dim; ++x) {
          *scratch.d_queries.at(i, x) += coefficient * element_of(scratch.key_rows.at(words_of(key + j), x), j);
        }
      }
    }
  }
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
