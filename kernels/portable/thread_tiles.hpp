#pragma once
/// The functions of tiles.hpp where a column is a thread: compiled into the kernels of a device.

#include <cmath>

#include "distattn/float16.hpp"
#include "kernels/portable/tile_math.hpp"

namespace distattn::kernels::portable {

/// How tile_math.hpp computes with single numbers.
template <class Number>
struct Scalars {
  using Real = Number;
  using Values = Number;
  static constexpr int width = 1;
  static constexpr bool has_many_registers = true;
  using Words = std::uint32_t;
  static constexpr int words = 1;
  using Multiply = MultiplyWords;

  DISTATTN_HOST_DEVICE static Words load_words(const std::uint32_t* from) { return *from; }
  DISTATTN_HOST_DEVICE static void store_words(std::uint32_t* into, Words value) { *into = value; }
  DISTATTN_HOST_DEVICE static Values load(const Real* from) { return *from; }
  DISTATTN_HOST_DEVICE static void store(Real* into, Values value) { *into = value; }
  DISTATTN_HOST_DEVICE static Values fused(Values a, Values b, Values c) { return a * b + c; }
  DISTATTN_HOST_DEVICE static Values larger(Values a, Values b) { return a > b ? a : b; }
  DISTATTN_HOST_DEVICE static Values at_most(Values most, Values b) { return b > most ? most : b; }
  DISTATTN_HOST_DEVICE static Values exp(Values x) { return std::exp(x); }
  template <class One>
  DISTATTN_HOST_DEVICE static Values each(Values x, One one) {
    return one(x);
  }
  DISTATTN_HOST_DEVICE static bool any_nonzero(Values value) { return !(value == 0); }
  DISTATTN_HOST_DEVICE static Real of_bf16(std::uint16_t bits) { return static_cast<Real>(bf16_to_float(bits)); }
  DISTATTN_HOST_DEVICE static Real of_fp16(std::uint16_t bits) { return static_cast<Real>(fp16_to_float(bits)); }
};

/// TileFunctions by their names, without pointers to functions, which not every device has.
template <class Real>
struct ThreadTiles {
  using Lanes = Scalars<Real>;
  static constexpr int queries_drawn = 1;

  DISTATTN_HOST_DEVICE static void multiply(Place place, const Product<Real>& product) {
    portable::multiply<Lanes>(place, product);
  }
  DISTATTN_HOST_DEVICE static void map(Place place, const Scores& scores, const Tile<Real>& tile) {
    portable::map<Lanes>(place, scores, tile);
  }
  DISTATTN_HOST_DEVICE static void weigh(Place place, const Tile<Real>& tile, Real* top, Real* sum, Real* shrink) {
    portable::weigh<Lanes>(place, tile, top, sum, shrink);
  }
  DISTATTN_HOST_DEVICE static void shrink(Place place, const Tile<Real>& tile, const Real* shrink) {
    shrink_rows<Lanes>(place, tile, shrink);
  }
  DISTATTN_HOST_DEVICE static void differentiate(Place place, const Scores& scores, const Tile<Real>& tile,
                                                 Real* products, const QueryValues<Real>& queries,
                                                 bool queries_are_rows) {
    portable::differentiate<Lanes>(place, scores, tile, products, queries, queries_are_rows);
  }
  DISTATTN_HOST_DEVICE static void draw(const Draws& draws, std::uint32_t* words) {
    portable::draw<Lanes, queries_drawn>(draws, words);
  }
  DISTATTN_HOST_DEVICE static bool load(Place place, const TensorRows& from, int count, int dim,
                                        const Tile<Real>& into) {
    return portable::load<Lanes>(place, from, count, dim, into);
  }
  DISTATTN_HOST_DEVICE static bool load_transposed(Place place, const TensorRows& from, int count, int dim,
                                                   const Tile<Real>& into) {
    return portable::load_transposed<Lanes>(place, from, count, dim, into);
  }
};

}  // namespace distattn::kernels::portable
