#pragma once
/// What a thread keeps while it computes the gradients of a chunk of keys: shapes of blocks, a place for each operand.

#include "kernels/kokkos/scratch.hpp"
#include "kernels/kokkos/tile_shape.hpp"

namespace distattn::kernels::kokkos::DISTATTN_ISA {

/// Queries of a block and keys that are met at once. Multiples of panel_width and of both tiles' rows.
inline constexpr int backward_rows = 144;
inline constexpr int backward_keys = 144;
inline constexpr int backward_panels = backward_rows / panel_width;
static_assert(backward_rows % panel_width == 0 && backward_keys % tile_rows == 0);

/// Tiles of dK and dV: keys × a panel of the head dimension.
inline constexpr int gradient_rows = 6;
inline constexpr int gradient_vectors = vector_registers == 32 ? 4 : 2;
inline constexpr int gradient_width = gradient_vectors * lanes;
static_assert(backward_keys % gradient_rows == 0);

/// Most keys of a chunk: about what a second-level cache has, a whole number of backward_keys.
inline int backward_chunk(int head_dim, int value_dim) {
  constexpr int chunk_floats = 576 * 256;
  const int keys = smaller(8 * backward_keys, chunk_floats / (head_dim + value_dim));
  return bigger(backward_keys, keys / backward_keys * backward_keys);
}

/// dK or dV of a chunk: [dim panel][key][gradient_width].
struct GradientPanels {
  float* data;
  int keys;  ///< rows of a panel: the last tile of rows may reach beyond the chunk

  float* panel(int x) const { return data + x / gradient_width * keys * gradient_width; }
  float* at(int key, int x) const { return panel(x) + key * gradient_width + x % gradient_width; }
};

/// Which operands have neither NaN nor infinity. Elsewhere a coefficient of 0 does not hide what a query does not see.
struct Finite {
  bool keys, queries, d_outputs;
};

/// Operands and state of a chunk of keys and a block of queries, laid out in a thread's scratch.
struct BackwardScratch {
  float* keys;           // [tile][head_dim][tile_rows]
  float* values;         // [tile][value_dim][tile_rows]
  float* key_columns;    // [dim tile][key][tile_rows], tiles column_tile apart
  float* queries;        // [panel][head_dim][panel_width], times scale·log2e
  float* d_outputs;      // [panel][value_dim][panel_width]
  float* query_rows;     // [dim panel][row][gradient_width]
  float* d_output_rows;  // [dim panel][row][gradient_width]
  float* lse;            // [row], times log2e
  float* delta;          // [row], times scale
  float* d_queries;      // [panel][head_dim][panel_width]
  GradientPanels d_keys, d_values;
  float* weights;   // Pᵀ: [key][row]
  float* d_scores;  // dSᵀ: [key][row]
  float* widened;   // [row][dim]: where 16-bit rows are widened
  Finite* finite;
  int column_tile;  // floats
  std::size_t bytes;

  BackwardScratch(std::byte* memory, int head_dim, int value_dim) {
    const int chunk = backward_chunk(head_dim, value_dim);
    column_tile = chunk * tile_rows + 16;
    const int gradient_keys = chunk + gradient_rows;
    Carver carve(memory);
    keys = carve.floats(chunk * head_dim);
    values = carve.floats(chunk * value_dim);
    key_columns = carve.floats(column_tile * head_dim / tile_rows);
    queries = carve.floats(backward_rows * head_dim);
    d_outputs = carve.floats(backward_rows * value_dim);
    query_rows = carve.floats(backward_rows * rounded_up(head_dim, gradient_width));
    d_output_rows = carve.floats(backward_rows * rounded_up(value_dim, gradient_width));
    lse = carve.floats(backward_rows);
    delta = carve.floats(backward_rows);
    d_queries = carve.floats(backward_rows * head_dim);
    d_keys = {carve.floats(gradient_keys * rounded_up(head_dim, gradient_width)), gradient_keys};
    d_values = {carve.floats(gradient_keys * rounded_up(value_dim, gradient_width)), gradient_keys};
    weights = carve.floats(backward_keys * backward_rows);
    d_scores = carve.floats(backward_keys * backward_rows);
    widened = carve.floats(backward_rows * bigger(head_dim, value_dim));
    finite = reinterpret_cast<Finite*>(carve.floats(sizeof(Finite)));
    bytes = carve.bytes();
  }
};

}  // namespace distattn::kernels::kokkos::DISTATTN_ISA
