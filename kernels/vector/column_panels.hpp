#pragma once
/// Rows whose sums products by tiles make as columns, and what is done with them where others keep rows.

#include "kernels/vector/row_panels.hpp"
#include "kernels/vector/tiles.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// Rows of a head as columns of panels: [row panel][dim in whole squares][panel_width].
struct ColumnPanels {
  float* data;
  int dim;  ///< in whole squares
  int row;  ///< the first

  float* panel(int i) const { return data + std::ptrdiff_t{row + i} / panel_width * panel_width * dim; }
  float* at(int i, int x) const { return panel(i) + x * panel_width + (row + i) % panel_width; }
  ColumnPanels from(int i) const { return {data, dim, row + i}; }
};
static_assert(panel_width == tile_square);

inline ColumnPanels carve_columns(Carver& carve, int rows, int dim) {
  const int padded = rounded_up(dim, tile_square);
  return {carve.floats(rounded_up(rows, panel_width) * padded), padded, 0};
}

inline void clear_rows(const ColumnPanels& rows, int count, int dim) {
  for (int i = 0; i < count;) {
    const bool whole = (rows.row + i) % lanes == 0 && count - i >= lanes;
    for (int x = 0; x < dim; ++x) {
      if (whole) {
        store(rows.at(i, x), Vector(0.f));
      } else {
        *rows.at(i, x) = 0.f;
      }
    }
    i += whole ? lanes : 1;
  }
}

/// As of RowPanels.
template <class Put>
DISTATTN_INLINE void put_rows(const ColumnPanels& rows, int count, int dim, const HeadRows<float>& into, Put put) {
  alignas(64) float some[tile_floats];
  for (int i = 0, next = 0; i < count; i = next) {
    const int skipped = (rows.row + i) % lanes;
    next = smaller(count, i + lanes - skipped);
    Prefetch({into.data + next * into.stride, into.stride}, DType::fp32, smaller(lanes, count - next), dim).all();
    for (int x = 0; x < dim; x += lanes) {
      transpose_tile(rows.at(i - skipped, x), panel_width, some, tile_side);
      for (int r = i; r < next; ++r) {
        float* const at = into.data + r * into.stride + x;
        const auto before = [&] { return load_first(at, dim - x); };
        store_first(at, put(r, x, load(some + (r - i + skipped) * tile_side), before), dim - x);
      }
    }
  }
}

/// into (+)= rows.
inline void add_rows(const ColumnPanels& rows, int count, int dim, bool carry, const HeadRows<float>& into) {
  put_rows(rows, count, dim, into, [&](int, int, Vector sum, auto before) { return carry ? before() + sum : sum; });
}

/// Words of terms as a left operand of `steps` steps whose rows are columns of theirs.
inline void transpose_terms(const RowPanels& terms, int words, int dim, int steps, float* into) {
  for (int x = 0; x < dim; x += tile_side) {
    for (int word = 0; word < words; word += tile_side) {
      transpose_tile(terms.at(word, x), sum_width, left_row(into, x, steps) + word / tile_side * left_step, tile_side);
    }
  }
}

/// Adds Σ left · terms of `steps` steps to 32 rows.
inline void add_rows_of(const float* left, int steps, const RowPanels& terms, int dim, const RowPanels& sums) {
  alignas(64) float made[tile_square * tile_square];
  for (int x = 0; x < dim; x += tile_square) {
    multiply_square<sum_width, tile_square>(steps, left, terms.at(0, x), made);
    for (int i = 0; i < tile_square; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < tile_vectors; ++v) {
        float* const at = sums.at(i, x + v * lanes);
        store(at, load(at) + load(made + i * tile_square + v * lanes));
      }
    }
  }
}

/// sums = start(vector of columns, sums) + Σ left · right, of `dim` rows of a panel of columns and `steps` steps. Rows
/// of `left` have `all_steps`. A square is added while the next one is multiplied; calls between(step) meanwhile, too.
template <int RightRow, Reuse of_left, class Start, class Between>
DISTATTN_INLINE void add_columns(const float* left, int all_steps, int steps, const float* right, int dim, float* sums,
                                 Start start, Between between) {
  alignas(64) float made[2][tile_square * tile_square];
  const int rows_a_step = (tile_square + steps - 1) / steps;
  const auto add = [&](int x, int from, int to) {
    const float* const some = made[x / tile_square % 2];
    for (int i = from * panel_width; i < to * panel_width; i += panel_width) {
#pragma GCC unroll 2
      for (int v = 0; v < tile_vectors; ++v) {
        float* const at = sums + x * panel_width + i + v * lanes;
        store(at, start(v, load(at)) + load(some + i + v * lanes));
      }
    }
  };
  int x = 0;
  for (; x < dim; x += tile_square, left += all_steps * left_step) {
    float* const into = made[x / tile_square % 2];
    multiply_square<RightRow, panel_width, of_left>(steps, left, right, into, [&](int step) {
      const int from = smaller(tile_square, step * rows_a_step);
      if (x > 0) add(x - tile_square, from, smaller(tile_square, from + rows_a_step));
      between(step);
    });
  }
  add(x - tile_square, 0, tile_square);
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
