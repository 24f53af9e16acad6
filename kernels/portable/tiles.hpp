#pragma once
/// What is done with tiles of scores, as functions of plain arrays: what the portable kernels spend their time with.
/// Hosts call code for their vector instructions by a table; devices compile the same templates (tile_math.hpp) into
/// their kernels.
///
/// Arrays lie in a team's scratch memory, 64-byte aligned, one value after the other in a row, rows `stride` apart. A
/// stride, and a number of columns, is a multiple of column_step; a number of rows of row_step. What is beyond the
/// tokens or dimensions of a tile is zeros or hidden.

#include <cstdint>

#include "distattn/scores.hpp"
#include "distattn/types.hpp"

namespace distattn::kernels::portable {

inline constexpr int column_step = 32, row_step = 8;

DISTATTN_HOST_DEVICE constexpr int padded(int count, int step) { return (count + step - 1) / step * step; }

/// A thread's place in its team, whose threads share the work of every function and wait for each other between them.
struct Place {
  int rank = 0, size = 1;
};

/// c[row][column] = factor · Σ_d a[row·a_row + d·a_depth] · b[d][column], or += that. Sums are over d in order.
template <class Real>
struct Product {
  Real* c;
  int c_stride;
  const Real* a;
  int a_row, a_depth;
  const Real* b;
  int b_stride;
  int rows, columns, depth;
  Real factor = 1;
  bool add = false;
};

/// A tile of scores, or of what has their shape.
template <class Real>
struct Tile {
  Real* values;
  int stride;
  int rows, columns;
};

/// Rows of a tensor: row r begins at data + (r / heads_apart)·head + (r % heads_apart)·token, in elements.
struct TensorRows {
  const void* data;
  std::int64_t head, token, heads_apart, first;
  DType dtype;

  DISTATTN_HOST_DEVICE constexpr std::int64_t offset(std::int64_t row) const {
    return (first + row) / heads_apart * head + (first + row) % heads_apart * token;
  }
};

/// Values of one query each, along the columns of a tile or, where queries are its rows, along them.
template <class Real>
struct QueryValues {
  const Real* lse;
  const Real* lse_low;
  const Real* delta;
};

/// Draws of dropout (kernels/dropout.hpp) for keys 4·four … 4·four+3: of one query each, at its position, of its head.
struct Draws {
  const std::uint32_t* queries;
  const std::uint32_t* heads;
  std::uint32_t four, offset, key0, key1;
};

template <class Real>
struct TileFunctions {
  static constexpr int queries_drawn = 16;  ///< by one call of draw()

  void (*multiply)(Place place, const Product<Real>& product);
  /// scores = map of the products that they are.
  void (*map)(Place place, const Scores& scores, const Tile<Real>& tile);
  /// Of each column: raises top to its largest score, makes scores the weights e^(score − top), and sum what it was
  /// times shrink, e^(top before − top), plus the weights.
  void (*weigh)(Place place, const Tile<Real>& tile, Real* top, Real* sum, Real* shrink);
  /// Row by row times shrink.
  void (*shrink)(Place place, const Tile<Real>& tile, const Real* shrink);
  /// Products in the tile become weights P = e^(score − lse − lse_low) ≤ 1 of their scores; products dP become the
  /// gradient of the products in the tile, of which P∘(dP − delta) is that of the scores.
  void (*differentiate)(Place place, const Scores& scores, const Tile<Real>& tile, Real* products,
                        const QueryValues<Real>& queries, bool queries_are_rows);
  /// words[key mod 4][query], queries_drawn of them in a row.
  void (*draw)(const Draws& draws, std::uint32_t* words);
  /// into[row][x] = the row as Real, zeros up to `rows` and `columns`. Returns whether all of it is finite.
  bool (*load)(Place place, const TensorRows& from, int count, int dim, const Tile<Real>& into);
  /// into[x][row], the same.
  bool (*load_transposed)(Place place, const TensorRows& from, int count, int dim, const Tile<Real>& into);
};

/// Of both types that sums are kept in.
struct AllTileFunctions {
  TileFunctions<float> of_floats;
  TileFunctions<double> of_doubles;
};

/// Compiled for the instruction set that kernels/vector/select.hpp chooses. Throws as that does.
const AllTileFunctions& tile_functions();

}  // namespace distattn::kernels::portable
