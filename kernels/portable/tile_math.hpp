#pragma once
/// The functions of tiles.hpp, over a type that says how values are held: `Lanes` has Real, Values (of `width`
/// columns), and how they are loaded, stored, multiplied and compared. On a host Values are vectors; on a device they
/// are single numbers, and threads of a team take columns.

#include <cstddef>
#include <limits>
#include <type_traits>

#include "kernels/dropout.hpp"
#include "kernels/portable/tiles.hpp"
#include "kernels/scores.hpp"

#if defined(__CUDA_ARCH__)
#define DISTATTN_UNROLL(count) _Pragma("unroll")
#elif defined(__CUDACC__)
#define DISTATTN_UNROLL(count)  // its host pass knows neither pragma, and computes nothing
#else
#define DISTATTN_UNROLL_TEXT(text) _Pragma(#text)
#define DISTATTN_UNROLL(count) DISTATTN_UNROLL_TEXT(GCC unroll count)
#endif

namespace distattn::kernels::portable {

/// Whether a column is a thread.
template <class Lanes>
inline constexpr bool is_thread = Lanes::width == 1;

/// The first of a tile's columns that are this thread's, and how far the next ones are.
template <class Lanes>
DISTATTN_HOST_DEVICE constexpr int first_column(Place place) {
  return place.rank * Lanes::width;
}
template <class Lanes>
DISTATTN_HOST_DEVICE constexpr int next_column(Place place) {
  return place.size * Lanes::width;
}

template <class Lanes>
DISTATTN_HOST_DEVICE void multiply(Place place, const Product<typename Lanes::Real>& product) {
  using Values = typename Lanes::Values;
  using Real = typename Lanes::Real;
  // Register tiles: rows × vectors that leave registers for a row of b and a broadcast.
  constexpr int rows = Lanes::has_many_registers ? 8 : 4, across = 2, width = across * Lanes::width;
  static_assert(row_step % rows == 0 && column_step % width == 0);
  const int down = product.rows / rows, right = product.columns / width, tiles = down * right;
  for (int tile = place.rank; tile < tiles; tile += place.size) {
    // Neighbouring threads of a device read neighbouring columns; a host keeps a strip of b in its cache.
    const int row = (is_thread<Lanes> ? tile / right : tile % down) * rows;
    const int column = (is_thread<Lanes> ? tile % right : tile / down) * width;
    Values sums[rows][across];
    DISTATTN_UNROLL(8)
    for (int i = 0; i < rows; ++i) {
      DISTATTN_UNROLL(2)
      for (int v = 0; v < across; ++v) sums[i][v] = Values(Real(0));
    }
    const Real* __restrict a = product.a + static_cast<std::ptrdiff_t>(row) * product.a_row;
    const Real* __restrict b = product.b + column;
    const std::ptrdiff_t a_row = product.a_row, a_depth = product.a_depth, b_stride = product.b_stride;
    for (int d = 0; d < product.depth; ++d, a += a_depth, b += b_stride) {
      Values of_b[across];
      DISTATTN_UNROLL(2)
      for (int v = 0; v < across; ++v) of_b[v] = Lanes::load(b + v * Lanes::width);
      DISTATTN_UNROLL(8)
      for (int i = 0; i < rows; ++i) {
        const Values of_a(a[i * a_row]);
        DISTATTN_UNROLL(2)
        for (int v = 0; v < across; ++v) sums[i][v] = Lanes::fused(of_a, of_b[v], sums[i][v]);
      }
    }
    const Values factor(product.factor);
    DISTATTN_UNROLL(8)
    for (int i = 0; i < rows; ++i) {
      Real* const c = product.c + static_cast<std::ptrdiff_t>(row + i) * product.c_stride + column;
      DISTATTN_UNROLL(2)
      for (int v = 0; v < across; ++v) {
        Real* const at = c + v * Lanes::width;
        Lanes::store(at, product.add ? Lanes::fused(factor, sums[i][v], Lanes::load(at)) : factor * sums[i][v]);
      }
    }
  }
}

template <class Lanes>
DISTATTN_HOST_DEVICE void map(Place place, const Scores& scores, const Tile<typename Lanes::Real>& tile) {
  with_scores<typename Lanes::Real>(scores, [&](const auto& of_products) {
    using Map = std::remove_cvref_t<decltype(of_products)>;
    if constexpr (!Map::is_linear) {
      for (int n = first_column<Lanes>(place); n < tile.columns; n += next_column<Lanes>(place)) {
        for (int row = 0; row < tile.rows; ++row) {
          auto* const at = tile.values + static_cast<std::ptrdiff_t>(row) * tile.stride + n;
          Lanes::store(at, Lanes::each(Lanes::load(at), [&](auto x) { return of_products.score(x); }));
        }
      }
    }
  });
}

template <class Lanes>
DISTATTN_HOST_DEVICE void weigh(Place place, const Tile<typename Lanes::Real>& tile, typename Lanes::Real* top,
                                typename Lanes::Real* sum, typename Lanes::Real* shrink) {
  using Values = typename Lanes::Values;
  using Real = typename Lanes::Real;
  for (int n = first_column<Lanes>(place); n < tile.columns; n += next_column<Lanes>(place)) {
    const Values before = Lanes::load(top + n);
    Values most = before;
    Real* at = tile.values + n;
    for (int row = 0; row < tile.rows; ++row, at += tile.stride) most = Lanes::larger(most, Lanes::load(at));
    Lanes::store(top + n, most);
    // Where nothing is seen, of which −∞ − −∞ would make NaN.
    const Values level = Lanes::larger(Values(static_cast<Real>(-3.0e38)), most);
    const Values less = Lanes::exp(before - level);
    Lanes::store(shrink + n, less);
    Values total(Real(0));
    at = tile.values + n;
    for (int row = 0; row < tile.rows; ++row, at += tile.stride) {
      const Values weight = Lanes::exp(Lanes::load(at) - level);
      Lanes::store(at, weight);
      total = total + weight;
    }
    Lanes::store(sum + n, Lanes::load(sum + n) * less + total);
  }
}

template <class Lanes>
DISTATTN_HOST_DEVICE void shrink_rows(Place place, const Tile<typename Lanes::Real>& tile,
                                      const typename Lanes::Real* shrink) {
  using Values = typename Lanes::Values;
  using Real = typename Lanes::Real;
  for (int n = first_column<Lanes>(place); n < tile.columns; n += next_column<Lanes>(place)) {
    const Values less = Lanes::load(shrink + n);
    if (!Lanes::any_nonzero(less - Values(Real(1)))) continue;
    Real* at = tile.values + n;
    for (int row = 0; row < tile.rows; ++row, at += tile.stride) Lanes::store(at, Lanes::load(at) * less);
  }
}

template <class Lanes>
DISTATTN_HOST_DEVICE void differentiate(Place place, const Scores& scores, const Tile<typename Lanes::Real>& tile,
                                        typename Lanes::Real* products,
                                        const QueryValues<typename Lanes::Real>& queries, bool queries_are_rows) {
  using Values = typename Lanes::Values;
  using Real = typename Lanes::Real;
  with_scores<Real>(scores, [&](const auto& map) {
    constexpr bool is_linear = std::remove_cvref_t<decltype(map)>::is_linear;
    const auto score_of = [&](Values product) {
      return is_linear ? product : Lanes::each(product, [&](auto x) { return map.score(x); });
    };
    const auto gradient = [&](Values d_score, Values product) {
      if (is_linear) return d_score;
      return map.gradient(d_score, Lanes::each(product, [&](auto x) { return map.derivative(x); }));
    };
    const auto derive = [&](std::ptrdiff_t at, Values lse, Values low, Values delta) {
      const Values product = Lanes::load(tile.values + at);
      const Values weight = Lanes::exp(Lanes::at_most(Values(Real(0)), score_of(product) - lse - low));
      const Values d_score = weight * (Lanes::load(products + at) - delta);
      Lanes::store(tile.values + at, weight);
      Lanes::store(products + at, gradient(d_score, product));
    };
    for (int n = first_column<Lanes>(place); n < tile.columns; n += next_column<Lanes>(place)) {
      if (queries_are_rows) {
        for (int row = 0; row < tile.rows; ++row) {
          derive(static_cast<std::ptrdiff_t>(row) * tile.stride + n, Values(queries.lse[row]),
                 Values(queries.lse_low[row]), Values(queries.delta[row]));
        }
      } else {
        const Values lse = Lanes::load(queries.lse + n), low = Lanes::load(queries.lse_low + n);
        const Values delta = Lanes::load(queries.delta + n);
        for (int row = 0; row < tile.rows; ++row) {
          derive(static_cast<std::ptrdiff_t>(row) * tile.stride + n, lse, low, delta);
        }
      }
    }
  });
}

template <class Lanes, int queries>
DISTATTN_HOST_DEVICE void draw(const Draws& draws, std::uint32_t* words) {
  using Words = typename Lanes::Words;
  static_assert(queries % Lanes::words == 0);
  for (int i = 0; i < queries; i += Lanes::words) {
    const auto drawn =
        philox<Words>(draws.four, Lanes::load_words(draws.queries + i), Lanes::load_words(draws.heads + i),
                      draws.offset, draws.key0, draws.key1, typename Lanes::Multiply{});
    for (unsigned of_key = 0; of_key < 4; ++of_key) {
      Lanes::store_words(words + of_key * static_cast<unsigned>(queries) + i, drawn[of_key]);
    }
  }
}

/// Calls put(row, x, value) for `rows` rows and `columns` columns, with zeros beyond those that there are: a row at a
/// time for each thread, or an element where threads are columns. Returns whether all are finite.
template <class Lanes, class Element, class Widen, class Put>
DISTATTN_HOST_DEVICE bool load_rows(Place place, const TensorRows& from, int count, int dim, int rows, int columns,
                                    Widen widen, Put put) {
  using Real = typename Lanes::Real;
  constexpr Real largest = std::numeric_limits<Real>::max();
  int others = 0;  // numbers that are not finite
  if constexpr (is_thread<Lanes>) {
    for (int i = place.rank; i < rows * columns; i += place.size) {
      const int row = i / columns, x = i % columns;
      const bool is_there = row < count && x < dim;
      const Real value = is_there ? widen((static_cast<const Element*>(from.data) + from.offset(row))[x]) : Real(0);
      put(row, x, value);
      others |= static_cast<int>(!(value <= largest && value >= -largest));
    }
  } else {
    for (int row = place.rank; row < rows; row += place.size) {
      int x = 0;
      if (row < count) {
        const Element* const values = static_cast<const Element*>(from.data) + from.offset(row);
        for (; x < dim; ++x) {
          const Real value = widen(values[x]);
          put(row, x, value);
          others |= static_cast<int>(!(value <= largest && value >= -largest));
        }
      }
      for (; x < columns; ++x) put(row, x, Real(0));
    }
  }
  return others == 0;
}

/// The same for elements of any type.
template <class Lanes, class Put>
DISTATTN_HOST_DEVICE bool load_any(Place place, const TensorRows& from, int count, int dim, int rows, int columns,
                                   Put put) {
  using Real = typename Lanes::Real;
  const auto as_it_is = [](auto value) { return static_cast<Real>(value); };
  switch (from.dtype) {
    case DType::fp64:
      return load_rows<Lanes, double>(place, from, count, dim, rows, columns, as_it_is, put);
    case DType::fp32:
      return load_rows<Lanes, float>(place, from, count, dim, rows, columns, as_it_is, put);
    case DType::bf16:
      return load_rows<Lanes, std::uint16_t>(
          place, from, count, dim, rows, columns,
          [](std::uint16_t bits) { return static_cast<Real>(Lanes::of_bf16(bits)); }, put);
    case DType::fp16:
      return load_rows<Lanes, std::uint16_t>(
          place, from, count, dim, rows, columns,
          [](std::uint16_t bits) { return static_cast<Real>(Lanes::of_fp16(bits)); }, put);
  }
  return true;
}

template <class Lanes>
DISTATTN_HOST_DEVICE bool load(Place place, const TensorRows& from, int count, int dim,
                               const Tile<typename Lanes::Real>& into) {
  return load_any<Lanes>(place, from, count, dim, into.rows, into.columns, [&](int row, int x, auto value) {
    into.values[static_cast<std::ptrdiff_t>(row) * into.stride + x] = value;
  });
}

template <class Lanes>
DISTATTN_HOST_DEVICE bool load_transposed(Place place, const TensorRows& from, int count, int dim,
                                          const Tile<typename Lanes::Real>& into) {
  return load_any<Lanes>(place, from, count, dim, into.columns, into.rows, [&](int row, int x, auto value) {
    into.values[static_cast<std::ptrdiff_t>(x) * into.stride + row] = value;
  });
}

template <class Lanes>
inline constexpr TileFunctions<typename Lanes::Real> functions_of{
    .multiply = multiply<Lanes>,
    .map = map<Lanes>,
    .weigh = weigh<Lanes>,
    .shrink = shrink_rows<Lanes>,
    .differentiate = differentiate<Lanes>,
    .draw = draw<Lanes, TileFunctions<typename Lanes::Real>::queries_drawn>,
    .load = load<Lanes>,
    .load_transposed = load_transposed<Lanes>,
};

}  // namespace distattn::kernels::portable
