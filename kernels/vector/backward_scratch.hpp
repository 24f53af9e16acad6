#pragma once
/// What a thread keeps while it computes the gradients of a chunk of keys: shapes of blocks, a place for each operand.

#include <numeric>

#include "kernels/vector/lane_products.hpp"
#include "kernels/vector/sum_rows.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// Queries of a block and keys that are met at once.
inline constexpr int backward_rows = 144 * in_word;
inline constexpr int backward_keys = by_tiles ? 128 : 144;

/// What the rows of a block are padded to a multiple of: whole tiles of scores and of sums.
inline constexpr int row_unit = std::lcm(tile_rows, sum_rows);
static_assert(backward_rows % row_unit == 0 && backward_keys % panel_width == 0);

/// Words of a query's dS, of keys that are met at once, in memory of their own.
inline constexpr int d_score_row = rounded_up(words_of(backward_keys), lanes);

/// Most keys of a chunk: about what a second-level cache has, a whole number of backward_keys.
inline int backward_chunk(int head_dim, int value_dim) {
  constexpr int chunk_floats = 576 * 256;
  const int keys = smaller(8 * backward_keys, chunk_floats / (head_dim + value_dim));
  return bigger(backward_keys, keys / backward_keys * backward_keys);
}

/// What is known of operands: which have neither NaN nor infinity (elsewhere a coefficient of 0 does not hide what a
/// query does not see), whether keys have something in common, whether sums of dS are asked for, and whether dQ leaves
/// out what queries were told that keys have in common.
struct Known {
  bool finite_keys, finite_queries, finite_d_outputs;
  bool shared, summed, left_out;
};

/// Operands and state of a chunk of keys and a block of queries, laid out in a thread's scratch.
struct BackwardScratch {
  float* shared;                 // [head_dim] what the keys of the segment have in common
  float* keys;                   // [key panel][head_dim in words][panel_width], as pack_keys_transposed() makes them
  float* values;                 // [key panel][value_dim in words][panel_width]
  RowPanels key_rows;            // the same keys, without that factor, in words of keys
  RowPanels queries, d_outputs;  // in words along the head dimension, of tiles their memory has left operands;
                                 // d_outputs of floats times e^−lse_low
  RowPanels query_terms, d_output_terms;    // the same in words of rows, which for floats are the same memory
  float* lse;                               // [row]
  float* shift;                             // [row] what shared keys add to products
  std::int32_t* positions;                  // [row] of the queries
  float* sums;                              // [row] of dS
  float* squares;                           // [row] of dS and of P·delta, summed
  float* apart;                             // [head_dim] what the keys share, less what dQ leaves out
  float* delta;                             // [row], times factor and, where d_outputs are, e^−lse_low
  float* units;                             // [row] e^−lse_low
  float *query_columns, *d_output_columns;  // of tiles alone: the terms as left operands whose rows are columns
  RowPanels d_queries;
  SumRows d_keys, d_values;
  float* weights;       // P: [row][key]; words of rows in the end
  float* d_scores;      // dS: [row][key]; words of rows in the end
  float* d_score_rows;  // dS: [row][d_score_row], in words of keys
  RowPanels few_rows;   // queries as floats, of operations that have few
  float* widened;       // [row][dim]: where 16-bit rows are widened
  Known* known;
  std::size_t bytes;

  BackwardScratch(std::byte* memory, int head_dim, int value_dim) {
    const int chunk = backward_chunk(head_dim, value_dim);
    Carver carve(memory);
    keys = carve.floats(chunk * depth_words(head_dim));
    values = carve.floats(chunk * depth_words(value_dim));
    key_rows = carve_rows(carve, words_of(chunk), head_dim);
    queries = query_terms = carve_rows(carve, backward_rows, words_of(head_dim));
    d_outputs = d_output_terms = carve_rows(carve, backward_rows, words_of(value_dim));
    if constexpr (pairs) {
      query_terms = carve_rows(carve, words_of(backward_rows), head_dim);
      d_output_terms = carve_rows(carve, words_of(backward_rows), value_dim);
    }
    query_columns = by_tiles ? carve.floats(words_of(backward_rows) * rounded_up(head_dim, tile_square)) : nullptr;
    d_output_columns = by_tiles ? carve.floats(words_of(backward_rows) * rounded_up(value_dim, tile_square)) : nullptr;
    lse = carve.floats(backward_rows);
    delta = carve.floats(backward_rows);
    d_queries = carve_rows(carve, backward_rows, head_dim);
    d_keys = carve_sums(carve, chunk, head_dim);
    d_values = carve_sums(carve, chunk, value_dim);
    weights = carve.floats(backward_rows * backward_keys);
    d_scores = d_score_rows = carve.floats(backward_rows * backward_keys);
    if constexpr (pairs) d_score_rows = carve.floats(backward_rows * d_score_row);
    few_rows = pairs ? carve_rows(carve, few_queries, head_dim) : queries;
    units = carve.floats(backward_rows);
    widened = carve.floats(backward_rows * bigger(head_dim, value_dim));
    shared = carve.floats(rounded_up(head_dim, sum_width));
    shift = carve.floats(backward_rows);
    positions = carve.integers(backward_rows);
    sums = carve.floats(backward_rows);
    squares = carve.floats(backward_rows);
    apart = carve.floats(rounded_up(head_dim, lanes));
    known = reinterpret_cast<Known*>(carve.floats(sizeof(Known)));
    bytes = carve.bytes();
  }
};

}  // namespace distattn::kernels::vector::DISTATTN_ISA
