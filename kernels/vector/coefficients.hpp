#pragma once
/// Weights and gradients of scores as the coefficients of sums: floats stay as they are, others become words of pairs
/// along what is summed over (operands.hpp).

#include "kernels/vector/backward_scratch.hpp"
#include "kernels/vector/operands.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// Weights of the keys [first, last) of a block, whole words of them, as the coefficients of their values.
inline void join_weights(float* weights, int first, int last) {
  if constexpr (!pairs) return;
  for (int j = first; j < last; j += in_word) {
    for (int v = 0; v < panel_width; v += lanes) {
      const float* const from = weights + j * panel_width + v;
      store(weights + words_of(j) * panel_width + v, joined(load(from), load(from + panel_width)));
    }
  }
}

/// P and dS of `count` keys, whole panels of them, as coefficients of sums.
inline void join_coefficients(int rows, int count, const BackwardScratch& scratch) {
  if constexpr (!pairs) return;
  for (int i = 0; i < rows; ++i) {
    const float* const from = scratch.d_scores + i * backward_keys;
    float* const into = scratch.d_score_rows + i * d_score_row;
    int j = 0;
    for (; j + 2 * lanes <= count; j += 2 * lanes) {
      store(into + words_of(j), neighbours(load(from + j), load(from + j + lanes)));
    }
    if (j < count) store(into + words_of(j), neighbours(load(from + j), Vector(0.f)));
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

}  // namespace distattn::kernels::vector::DISTATTN_ISA
