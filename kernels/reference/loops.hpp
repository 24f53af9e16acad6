#pragma once
/// The two inner loops of attention, and the rows that they run over.

#include <cmath>

#include "kernels/arguments.hpp"
#include "kernels/element.hpp"
#include "kernels/scores.hpp"

namespace distattn::kernels::reference {

template <class Element>
const Element* row_of(const ConstRows& rows, std::int64_t batch, std::int64_t head, std::int64_t token) {
  return static_cast<const Element*>(rows.data) + rows.offset(batch, head, token);
}
template <class Element>
Element* row_of(const Rows& rows, std::int64_t batch, std::int64_t head, std::int64_t token) {
  return static_cast<Element*>(rows.data) + rows.offset(batch, head, token);
}

/// Σ_x a[x]·b[x], in eight interleaved sums that compilers turn into vectors without reordering anything.
template <class Sum, class A, class B>
Sum dot(const A* a, const B* b, int dim) {
  Sum sums[8] = {};
  int x = 0;
  for (; x + 8 <= dim; x += 8) {
    for (int lane = 0; lane < 8; ++lane) sums[lane] += static_cast<Sum>(a[x + lane]) * static_cast<Sum>(b[x + lane]);
  }
  for (; x < dim; ++x) sums[x % 8] += static_cast<Sum>(a[x]) * static_cast<Sum>(b[x]);
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/// A score, and the product that it was made of, which its derivative follows from.
template <class Sum>
struct PairScore {
  Sum score, product;
};

/// What a linear bias of this slope adds to the score of two positions.
template <class Sum>
Sum bias_of(double slope, std::int64_t query, std::int64_t key) {
  return static_cast<Sum>(slope) * static_cast<Sum>(key - query);
}

/// Both passes make their scores here. This room is compiled without contraction, which would leave the product
/// unrounded where a sum takes it.
template <class Element, class Map>
PairScore<AccumulatorOf<Element>> score_of(const Map& map, const Element* q, const Element* k, int dim, double slope,
                                           std::int64_t query, std::int64_t key) {
  using Sum = AccumulatorOf<Element>;
  const Sum product = map.factor() * dot<Sum>(q, k, dim);
  return {map.score(product) + bias_of<Sum>(slope, query, key), product};
}

inline double slope_of(const TileShape& shape, int head) {
  return shape.alibi_slopes == nullptr ? 0 : shape.alibi_slopes[head];
}

/// Calls call(element, map) with a tile's element type and map of scores.
template <class Call>
void with_element_and_scores(const TileShape& shape, Call call) {
  with_element(shape.dtype, [&]<class Element>(Element element) {
    with_scores<AccumulatorOf<Element>>(shape.scores, [&](const auto& map) { call(element, map); });
  });
}

/// into[x] += factor·values[x].
template <class Sum, class Value>
void add_scaled(Sum* into, Sum factor, const Value* values, int dim) {
  for (int x = 0; x < dim; ++x) into[x] += factor * static_cast<Sum>(values[x]);
}

}  // namespace distattn::kernels::reference
