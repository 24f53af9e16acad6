#pragma once
/// The one inner loop behind every matrix product of attention.

#include "kernels/kokkos/simd.hpp"

namespace distattn::kernels::kokkos::DISTATTN_ISA {

/// C[Rows][Vectors·lanes] = init + Σ_k a[i·RowStride + k·DepthStride] · b[k·PanelStride + x], handed to
/// done(row, vector, sum) from registers. `a` is broadcast element by element; `b` is a panel of whole vectors.
template <int Rows, int Vectors, int RowStride, int DepthStride, int PanelStride, class Init, class Done>
DISTATTN_INLINE void product(int depth, const float* __restrict a, const float* __restrict b, Init init, Done done) {
  Vector sums[Rows][Vectors];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) sums[i][v] = init(i, v);
  }
#pragma GCC unroll 2
  for (int k = 0; k < depth; ++k) {
    Vector panel[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) panel[v] = load(b + v * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const Vector factor(a[i * RowStride]);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) sums[i][v] = factor * panel[v] + sums[i][v];
    }
    a += DepthStride;
    b += PanelStride;
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) done(i, v, sums[i][v]);
  }
}

}  // namespace distattn::kernels::kokkos::DISTATTN_ISA
