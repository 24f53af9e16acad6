#pragma once
/// Products of few queries, with the head dimension along the lanes: keys are multiplied as they lie. Both passes make
/// those of operations that have few queries here: they round otherwise than those of blocks.

#include "kernels/vector/elements.hpp"
#include "kernels/vector/packing.hpp"
#include "kernels/vector/tile_shape.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// More queries than that are better served as attend_block.hpp does.
inline constexpr int few_queries = bigger(8, lanes);

/// Rows and keys of a tile: its sums of scores, or its weights while values go by, stay in registers.
inline constexpr int few_rows = vector_registers == 32 ? 4 : 2;
inline constexpr int few_keys = 4;
static_assert(key_block % few_keys == 0 && key_block % lanes == 0);

DISTATTN_INLINE Quad sum_of_quads(Quad quad) { return quad; }
template <class Wide>
DISTATTN_INLINE Quad sum_of_quads(Wide wide) {
  if constexpr (sizeof(Wide) == 2 * sizeof(Quad)) {
    return __builtin_shufflevector(wide, wide, 0, 1, 2, 3) + __builtin_shufflevector(wide, wide, 4, 5, 6, 7);
  } else {
    return sum_of_quads(__builtin_shufflevector(wide, wide, 0, 1, 2, 3, 4, 5, 6, 7) +
                        __builtin_shufflevector(wide, wide, 8, 9, 10, 11, 12, 13, 14, 15));
  }
}

/// The sum of each vector's lanes.
DISTATTN_INLINE Quad sums_of_lanes(const Vector* four) {
  const auto halves = [](Lanes a, Lanes b) { return picked<0, 1, 4, 5>(a, b) + picked<2, 3, 6, 7>(a, b); };
  const auto whole = [](Lanes a, Lanes b) { return picked<0, 2, 4, 6>(a, b) + picked<1, 3, 5, 7>(a, b); };
  const auto at = [&](int i) { return std::bit_cast<Lanes>(four[i]); };
  return sum_of_quads(whole(halves(at(0), at(1)), halves(at(2), at(3))));
}

/// Products of few_keys keys and `Rows` queries, which have the scores' factor: key(j, x, load) and query(row, x) are
/// their elements from x on; done(row, products) takes a query's.
template <int Rows, class Key, class Query, class Done>
DISTATTN_INLINE void multiply_lanes(int dim, Key key, Query query, Done done) {
  Vector sums[Rows][few_keys];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < few_keys; ++j) sums[i][j] = 0.f;
  }
  for_each_vector(dim, [&](int x, auto load_key) {
#pragma GCC unroll 16
    for (int j = 0; j < few_keys; ++j) {
      const Vector some = key(j, x, load_key);
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i) sums[i][j] = fused(query(i, x), some, sums[i][j]);
    }
  });
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) done(i, sums_of_lanes(sums[i]));
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
