#pragma once
/// The one inner loop behind every matrix product of attention.

#include "kernels/vector/operands.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

#if !defined(__AMX_BF16__)
/// What products need around them: nothing.
struct ProductRegisters {};

/// e^x for x ≤ 0, of which tiles have a form of their own.
DISTATTN_INLINE Vector power_of_e(Vector x) { return exp(x); }
#endif

/// Sends what registers hold to memory, where there are so few that a product needs them all: compilers would rather
/// move a sum between both in every turn of its loop.
DISTATTN_INLINE void leave_registers() {
#if defined(__SSE2__) && !defined(__AVX512F__)
  __asm__ volatile(""
                   :
                   :
                   : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                     "xmm12", "xmm13", "xmm14", "xmm15");
#endif
}

/// sums[i][v] += Σ_k a[i·RowStride + k·DepthStride] · b[k·PanelStride + v·lanes…]. `depth` counts words (operands.hpp).
template <int Rows, int Vectors, int RowStride, int DepthStride, int PanelStride>
DISTATTN_INLINE void multiply_add(int depth, const float* __restrict a, const float* __restrict b,
                                  Vector (&sums)[Rows][Vectors]) {
#pragma GCC unroll 2
  for (int k = 0; k < depth; ++k) {
    Vector panel[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) panel[v] = load(b + v * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const Vector factor(a[i * RowStride]);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) sums[i][v] = multiplied(factor, panel[v], sums[i][v]);
    }
    a += DepthStride;
    b += PanelStride;
  }
}

/// C[Rows][Vectors·lanes] = init + Σ_k a[i·RowStride + k·DepthStride] · b[k·PanelStride + x], handed to
/// done(row, vector, sum) from registers. `a` is broadcast element by element; `b` is a panel of whole vectors. Where
/// `run` is less than the depth, every `run` steps of it lie together in `a`, `jump` floats from one such run's
/// beginning to the next one's.
template <int Rows, int Vectors, int RowStride, int DepthStride, int PanelStride, class Init, class Done>
DISTATTN_INLINE void product(int depth, const float* a, const float* b, Init init, Done done, int run = 0x7fffffff,
                             int jump = 0) {
  leave_registers();
  Vector sums[Rows][Vectors];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) sums[i][v] = init(i, v);
  }
  for (;; a += jump, b += run * PanelStride) {
    const int steps = smaller(run, depth);
    multiply_add<Rows, Vectors, RowStride, DepthStride, PanelStride>(steps, a, b, sums);
    if ((depth -= steps) == 0) break;
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) done(i, v, sums[i][v]);
  }
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
