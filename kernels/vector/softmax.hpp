#pragma once
/// Scores of a panel of queries as weights, with queries along the lanes.

#include "kernels/vector/attend_scratch.hpp"
#include "kernels/vector/drop.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// Raises top, and the sums to count in it, of vector v of the panel at `row`. rescale[query]: what multiplies the
/// output so far. Returns what weights are made with: of a query that has seen nothing e^(−∞ − lowest) is 0, e^(−∞ + ∞)
/// is not.
DISTATTN_INLINE Vector raise_top(const float* block_top, int row, int v, const AttendScratch& scratch, float* rescale) {
  const int at = row + v * lanes;
  const Vector before = load(scratch.top + at), after = larger(load(block_top + v * lanes), before);
  const Vector reference = larger(after, lowest), factor = exp(before - reference);
  store(rescale + v * lanes, factor);
  store(scratch.sum + at, load(scratch.sum + at) * factor);
  if constexpr (pairs) store(scratch.rounded + at, load(scratch.rounded + at) * factor);
  store(scratch.top + at, after);
  return reference;
}

/// Turns the scores of keys [0, count) into coefficients of values, e^(score − top), and raises top and sums of the
/// panel at `row` to include them.
inline void softmax(float* scores, float* coefficients, int count, const float* block_top, int row,
                    const AttendScratch& scratch, float* rescale) {
  float *const sum = scratch.sum + row, *const rounded = scratch.rounded + row;
  Vector reference[tile_vectors], sums[tile_vectors], rounded_sums[tile_vectors];
  for (int v = 0; v < tile_vectors; ++v) {
    reference[v] = raise_top(block_top, row, v, scratch, rescale);
    sums[v] = rounded_sums[v] = 0.f;
  }
  const auto weigh = [&](int j, int v) {
    const Vector weight = exp(load(scores + j * panel_width + v * lanes) - reference[v]);
    sums[v] += weight;
    return weight;
  };
  for (int j = 0; j < count; j += in_word) {
#pragma GCC unroll 8
    for (int v = 0; v < tile_vectors; ++v) {
      const Vector first = weigh(j, v), word = pairs ? joined(first, weigh(j + 1, v)) : first;
      if constexpr (pairs) rounded_sums[v] = multiplied(word, word_of_ones(), rounded_sums[v]);
      store(coefficients + words_of(j) * panel_width + v * lanes, word);
    }
  }
  for (int v = 0; v < tile_vectors; ++v) store(sum + v * lanes, load(sum + v * lanes) + sums[v]);
  for (int v = 0; pairs && v < tile_vectors; ++v) {
    store(rounded + v * lanes, load(rounded + v * lanes) + rounded_sums[v]);
  }
}

/// Drops weights of a panel's queries and keys [first, last), whole words of them, of the block of keys. Their sums
/// keep them, and what the others are multiplied by waits until these are as good as exact (settle): a row's only
/// weight, 1, is one of which nothing is rounded.
inline void drop_weights(const Drop& drop, float* coefficients, int block_key, int first, int last) {
  for (int v = 0; v < panel_width; v += lanes) {
    drop.for_each_key(v, first, last, [&](int key, Bits dropped) {
      const Bits part = static_cast<std::int32_t>(!pairs ? 0xffffffffu : key % 2 == 0 ? 0xffffu : 0xffff0000u);
      float* const at = coefficients + words_of(key - block_key) * panel_width + v;
      store(at, std::bit_cast<Vector>(std::bit_cast<Bits>(load(at)) & ~(dropped & part)));
    });
  }
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
