#pragma once
/// Rows of a tensor as the operands of products: brought nearer, widened to float, transposed.

#include <cstring>
#include <utility>

#include "distattn/types.hpp"
#include "kernels/vector/simd.hpp"
#include "kernels/vector/vector_kernels.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// From row `first` on.
DISTATTN_INLINE HeadRows<const void> rows_from(const HeadRows<const void>& rows, DType dtype, std::int64_t first) {
  const std::int64_t bytes = first * rows.stride * static_cast<std::int64_t>(size_of(dtype));
  return {static_cast<const std::byte*>(rows.data) + bytes, rows.stride};
}

/// The same, as far as they lie one behind the other (PageTable::end_of_run).
DISTATTN_INLINE HeadRows<const void> keys_from(const KeyRows& rows, DType dtype, std::int64_t first) {
  if (rows.pages.pages == nullptr) return rows_from(static_cast<const HeadRows<const void>&>(rows), dtype, first);
  const std::int64_t page = first / rows.pages.tokens;
  const std::int64_t elements = rows.pages.pages[page] * rows.page + (first - page * rows.pages.tokens) * rows.stride;
  return {static_cast<const std::byte*>(rows.data) + elements * static_cast<std::int64_t>(size_of(dtype)), rows.stride};
}
DISTATTN_INLINE HeadRows<const void> keys_from(const HeadRows<const void>& rows, DType dtype, std::int64_t first) {
  return rows_from(rows, dtype, first);
}
DISTATTN_INLINE int end_of_run(const KeyRows& rows, int first, int last) {
  return static_cast<int>(rows.pages.end_of_run(first, last));
}

inline HeadRows<const void> rows_of(const HeadRows<float>& rows) { return {rows.data, rows.stride}; }

/// Rows that will be packed or written soon, brought nearer a few lines at a time between products, or all while others
/// are packed: whoever touches them would otherwise wait for the memory behind the second-level cache.
class Prefetch {
 public:
  Prefetch(const HeadRows<const void>& from, DType dtype, int rows, int dim)
      : row_(static_cast<const std::byte*>(from.data)),
        stride_(from.stride * static_cast<std::int64_t>(size_of(dtype))),
        bytes_(dim * static_cast<std::int64_t>(size_of(dtype))),
        rows_(rows) {}

  DISTATTN_INLINE void some(int lines = 12) {
    for (int i = 0; i < lines && rows_ > 0; ++i) {
      __builtin_prefetch(row_ + at_, 0, 2);
      at_ += line;
      if (at_ < bytes_) continue;
      at_ = 0;
      row_ += stride_;
      --rows_;
    }
  }
  DISTATTN_INLINE void all() {
    while (rows_ > 0) some();
  }

 private:
  static constexpr std::int64_t line = 64;
  const std::byte* row_;
  std::int64_t stride_, bytes_, at_ = 0;
  int rows_;
};

using Quad = float __attribute__((vector_size(16)));

DISTATTN_INLINE Quad load_quad(const float* from) {
  Quad quad;
  std::memcpy(&quad, from, sizeof quad);
  return quad;
}
DISTATTN_INLINE void store_quad(float* into, Quad quad) { std::memcpy(into, &quad, sizeof quad); }

/// A vector's lanes, by fours.
using Lanes = float __attribute__((vector_size(lanes * sizeof(float))));

/// Of every four lanes of `a` and the same of `b`, four by their places among the eight.
template <int... Places, class Wide, int... Lane>
DISTATTN_INLINE Wide picked(Wide a, Wide b, std::integer_sequence<int, Lane...> all) {
  constexpr int places[] = {Places...};
  return __builtin_shufflevector(
      a, b, (Lane / 4 * 4 + places[Lane % 4] % 4 + places[Lane % 4] / 4 * static_cast<int>(all.size()))...);
}
template <int... Places, class Wide>
DISTATTN_INLINE Wide picked(Wide a, Wide b) {
  return picked<Places...>(a, b, std::make_integer_sequence<int, sizeof(Wide) / sizeof(float)>());
}

/// Four rows of four, or of several fours.
template <class Wide>
struct Fours {
  Wide row[4];
};

/// Each four by four by itself.
template <class Wide>
DISTATTN_INLINE Fours<Wide> transposed(const Fours<Wide>& m) {
  const Wide ab_low = picked<0, 4, 1, 5>(m.row[0], m.row[1]), ab_high = picked<2, 6, 3, 7>(m.row[0], m.row[1]);
  const Wide cd_low = picked<0, 4, 1, 5>(m.row[2], m.row[3]), cd_high = picked<2, 6, 3, 7>(m.row[2], m.row[3]);
  return {{picked<0, 1, 4, 5>(ab_low, cd_low), picked<2, 3, 6, 7>(ab_low, cd_low), picked<0, 1, 4, 5>(ab_high, cd_high),
           picked<2, 3, 6, 7>(ab_high, cd_high)}};
}

DISTATTN_INLINE float widen_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Without branches, also for the one that a compiler makes of a choice between two values, and without denormal
/// arithmetic, so that compilers vectorise it.
DISTATTN_INLINE float widen_fp16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t rest = static_cast<std::uint32_t>(bits & 0x7fffu) << 13;
  const std::uint32_t special = (bits & 0x7c00u) == 0x7c00u ? 0x70000000u : 0x38000000u;
  const float subnormal = std::bit_cast<float>(rest | 0x38800000u) - 0x1p-14f;
  const std::uint32_t is_subnormal = 0u - static_cast<std::uint32_t>((bits & 0x7c00u) == 0);
  const std::uint32_t magnitude =
      (std::bit_cast<std::uint32_t>(subnormal) & is_subnormal) | ((rest + special) & ~is_subnormal);
  return std::bit_cast<float>(magnitude | sign);
}

/// `dim` of them, a multiple of 8.
DISTATTN_INLINE void widen_fp16(const std::uint16_t* from, int dim, float* into) {
#if defined(__F16C__)
  for (int x = 0; x < dim; x += 8) {  // whose denormals no mode of the processor flushes
    _mm256_storeu_ps(into + x, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + x))));
  }
#else
  for (int x = 0; x < dim; ++x) into[x] = widen_fp16(from[x]);
#endif
}

/// `count` rows as floats: where they lie, or widened into `buffer`.
inline HeadRows<const float> widened(const HeadRows<const void>& from, DType dtype, int count, int dim, float* buffer) {
  if (dtype == DType::fp32) return {static_cast<const float*>(from.data), from.stride};
  for (int i = 0; i < count; ++i) {
    const auto* bits = static_cast<const std::uint16_t*>(from.data) + i * from.stride;
    float* row = buffer + static_cast<std::ptrdiff_t>(i) * dim;
    if (dtype == DType::bf16) {
      for (int x = 0; x < dim; ++x) row[x] = widen_bf16(bits[x]);
    } else {
      widen_fp16(bits, dim, row);
    }
  }
  return {buffer, dim};
}

/// `rows` rows of four, at most 4; zeros for the others.
DISTATTN_INLINE Fours<Quad> load_quads(const float* from, std::ptrdiff_t stride, int rows) {
  if (rows >= 4) {
    return {{load_quad(from), load_quad(from + stride), load_quad(from + 2 * stride), load_quad(from + 3 * stride)}};
  }
  Fours<Quad> quads{};
  for (int i = 0; i < rows; ++i) quads.row[i] = load_quad(from + i * stride);
  return quads;
}

/// into[x·Width + i] = changed(x, row i, element x), of four rows at a time, for i < rows; of nothing or zeros for
/// rows ≤ i < Width. dim is a multiple of 4.
template <int Width, class Changed>
inline void pack_transposed(const HeadRows<const float>& from, int rows, int dim, float* into, Changed changed) {
  if (rows < Width) std::memset(into, 0, static_cast<std::size_t>(Width) * dim * sizeof(float));
  // A line of every row before the next: what that writes stays in the first-level cache.
  constexpr int line = 16;
  for (int first = 0; first < dim; first += line) {
    const int last = first + line < dim ? first + line : dim;
    for (int i = 0; i < rows; i += 4) {
      for (int x = first; x < last; x += 4) {
        const Fours<Quad> four = transposed(load_quads(from.data + i * from.stride + x, from.stride, rows - i));
        for (int r = 0; r < 4; ++r) store_quad(into + (x + r) * Width + i, changed(x + r, four.row[r]));
      }
    }
  }
}

#if defined(__AMX_BF16__)
/// into[j·into_stride + i] = from[i·from_stride + j], for 16 rows i of 16 words j.
DISTATTN_INLINE void transpose_tile(const float* from, std::ptrdiff_t from_stride, float* into,
                                    std::ptrdiff_t into_stride) {
#pragma GCC unroll 4
  for (int j = 0; j < lanes; j += 4) {
    Fours<Lanes> rows;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const float* const at = from + i * from_stride + j;
      __m512 all = _mm512_castps128_ps512(_mm_loadu_ps(at));
      all = _mm512_maskz_insertf32x4(0xffff, all, _mm_loadu_ps(at + 4 * from_stride), 1);
      all = _mm512_maskz_insertf32x4(0xffff, all, _mm_loadu_ps(at + 8 * from_stride), 2);
      all = _mm512_maskz_insertf32x4(0xffff, all, _mm_loadu_ps(at + 12 * from_stride), 3);
      rows.row[i] = std::bit_cast<Lanes>(all);
    }
    const Fours<Lanes> columns = transposed(rows);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) store(into + (j + i) * into_stride, std::bit_cast<Vector>(columns.row[i]));
  }
}

template <int Width>
inline void pack_transposed(const HeadRows<const float>& from, int rows, int dim, float* into) {
  alignas(64) float some[lanes * lanes];
  for (int i = 0; i < Width; i += lanes) {
    for (int x = 0; x < dim; x += lanes) {
      const float* at = from.data + i * from.stride + x;
      std::ptrdiff_t stride = from.stride;
      if (rows - i < lanes || dim - x < lanes) {
        for (int r = 0; r < lanes; ++r) {
          store(some + r * lanes, i + r < rows ? load_first(at + r * stride, dim - x) : Vector(0.f));
        }
        at = some;
        stride = lanes;
      }
      if (dim - x >= lanes) {
        transpose_tile(at, stride, into + x * Width + i, Width);
        continue;
      }
      alignas(64) float columns[lanes * lanes];
      transpose_tile(at, stride, columns, lanes);
      for (int c = 0; c < dim - x; ++c) store(into + (x + c) * Width + i, load(columns + c * lanes));
    }
  }
}
#else
template <int Width>
inline void pack_transposed(const HeadRows<const float>& from, int rows, int dim, float* into) {
  pack_transposed<Width>(from, rows, dim, into, [](int, Quad some) { return some; });
}
#endif

}  // namespace distattn::kernels::vector::DISTATTN_ISA
