#include "kernels/peak/x86.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#include <cstdint>
#endif

#include "kernels/peak/keep.hpp"
#include "kernels/tile_permission.hpp"

namespace distattn::kernels {

#if defined(__x86_64__)

namespace {

__attribute__((target("avx2,fma"))) void fma_ps_256(long turns) {
  __m256 sums[chains] = {};
  keep(sums);
  const __m256 factor = _mm256_set1_ps(0.5f);
  for (long turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) sums[i] = _mm256_fmadd_ps(sums[i], factor, factor);
  }
  keep(sums);
}

__attribute__((target("avx2,fma"))) void fma_pd_256(long turns) {
  __m256d sums[chains] = {};
  keep(sums);
  const __m256d factor = _mm256_set1_pd(0.5);
  for (long turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) sums[i] = _mm256_fmadd_pd(sums[i], factor, factor);
  }
  keep(sums);
}

__attribute__((target("avx512f"))) void fma_ps_512(long turns) {
  __m512 sums[chains] = {};
  keep(sums);
  const __m512 factor = _mm512_set1_ps(0.5f);
  for (long turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) sums[i] = _mm512_fmadd_ps(sums[i], factor, factor);
  }
  keep(sums);
}

__attribute__((target("avx512f"))) void fma_pd_512(long turns) {
  __m512d sums[chains] = {};
  keep(sums);
  const __m512d factor = _mm512_set1_pd(0.5);
  for (long turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) sums[i] = _mm512_fmadd_pd(sums[i], factor, factor);
  }
  keep(sums);
}

__attribute__((target("avx512f,avx512bw,avx512bf16"))) void dot_bf16_512(long turns) {
  __m512 sums[chains] = {};
  keep(sums);
  const auto factor = (__m512bh)_mm512_set1_epi16(0x3f00);
  for (long turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], factor, factor);
  }
  keep(sums);
}

// As text: clang 14 has no vector of fp16 without the extension.
__attribute__((target("avx512f,avx512bw,avx512fp16"))) void fma_ph_512(long turns) {
  __m512i sums[chains] = {};
  keep(sums);
  const __m512i factor = _mm512_set1_epi16(0x3800);
  for (long turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) {
      __m512i sum = sums[i];  // an element itself would stay in memory
      __asm__("vfmadd213ph %1, %1, %0" : "+v"(sum) : "v"(factor));
      sums[i] = sum;
    }
  }
  keep(sums);
}

bool has_fp16_arithmetic() {
  constexpr unsigned avx512_fp16 = 1u << 23;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx512f") && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & avx512_fp16) != 0;
}

__attribute__((target("amx-tile,amx-bf16"))) void dot_bf16_tiles(long turns) {
  struct alignas(64) {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } shapes;
  keep(shapes);  // g++ 12 takes the intrinsic to read eight bytes of it
  _tile_loadconfig(&shapes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (long turn = 0; turn < turns; ++turn) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

}  // namespace

std::vector<MultiplyAdd> x86_multiply_adds(DType dtype) {
  __builtin_cpu_init();
  std::vector<MultiplyAdd> all;
  const bool avx512 = __builtin_cpu_supports("avx512f");
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (dtype == DType::fp64) {
    if (avx512) all.push_back({"vfmadd (8 fp64)", 2 * 8 * chains, fma_pd_512});
    if (avx2) all.push_back({"vfmadd (4 fp64)", 2 * 4 * chains, fma_pd_256});
    return all;
  }
  if (avx512) all.push_back({"vfmadd (16 fp32)", 2 * 16 * chains, fma_ps_512});
  if (avx2) all.push_back({"vfmadd (8 fp32)", 2 * 8 * chains, fma_ps_256});
  if (dtype == DType::bf16 && __builtin_cpu_supports("avx512bf16")) {
    all.push_back({"vdpbf16ps (32 bf16)", 2 * 32 * chains, dot_bf16_512});
  }
  if (dtype == DType::fp16 && has_fp16_arithmetic()) {
    all.push_back({"vfmadd (32 fp16)", 2 * 32 * chains, fma_ph_512});
  }
  return all;
}

std::vector<MultiplyAdd> tile_multiply_adds() {
  if (!missing_tiles().empty()) return {};
  return {{"tdpbf16ps (tiles of bf16)", std::size_t{4} * 2 * 16 * 16 * 32, dot_bf16_tiles}};
}

#else

std::vector<MultiplyAdd> x86_multiply_adds(DType) { return {}; }
std::vector<MultiplyAdd> tile_multiply_adds() { return {}; }

#endif

}  // namespace distattn::kernels
