#pragma once
/// Weights and gradients of scores as the coefficients of sums: floats stay as they are, others become words of pairs
/// along what is summed over (operands.hpp).

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

}  // namespace distattn::kernels::vector::DISTATTN_ISA
