#pragma once
/// Products of matrices by the processor's tiles (AMX): registers of 16 rows of 16 words, an instruction that adds to
/// one of floats the product of two of pairs. Every product here makes a square of 32 × 32 sums, two tiles by two, from
/// operands that are padded with zeros to whole squares:
///
/// left operands: [32 rows][step][2 tiles][16 rows][16 words], a word being a pair along what is summed over;
/// right operands: [word][columns], at least 32 of them.

#include "kernels/vector/operands.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

inline constexpr int tile_side = lanes, tile_floats = tile_side * tile_side;
/// Words of 32 rows of a left operand, of one step.
inline constexpr int left_step = 2 * tile_floats;
static_assert(tile_square == 2 * tile_side && words_of(tile_square) == tile_side);

/// Registers of tiles in their one shape, for as long as this lives: the program's own threads come here.
class TileRegisters {
 public:
  TileRegisters() {
    struct alignas(64) {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } shapes;
    __asm__ volatile("ldtilecfg %0" : : "m"(shapes));
  }
  ~TileRegisters() { __asm__ volatile("tilerelease"); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

using ProductRegisters = TileRegisters;

/// Whether an operand is read again soon. One that only passes by should displace nothing of the first-level cache.
enum class Reuse { soon, none };

// As text, because intrinsics do not tell g++ 12 that they read memory.
template <int Tile>
DISTATTN_INLINE void clear_tile() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(Tile));
}
template <int Tile, Reuse reuse = Reuse::soon>
DISTATTN_INLINE void load_tile(const float* from, std::ptrdiff_t row_bytes) {
  if constexpr (reuse == Reuse::soon) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(row_bytes), "i"(Tile));
  } else {
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(row_bytes), "i"(Tile));
  }
}
template <int Tile>
DISTATTN_INLINE void store_tile(float* into, std::ptrdiff_t row_bytes) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(into), "r"(row_bytes), "i"(Tile) : "memory");
}
template <int Sum, int Left, int Right>
DISTATTN_INLINE void multiply_tile() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sum), "i"(Left), "i"(Right));
}

/// into[32][32] = left · right over `steps`, of which the right one has rows of `RightRow` words and the result has
/// rows of `IntoRow` floats. Calls between(step) after each step, for what vectors can do while tiles are multiplied.
template <int RightRow, int IntoRow, Reuse of_left = Reuse::soon, class Between>
DISTATTN_INLINE void multiply_square(int steps, const float* left, const float* right, float* into, Between between) {
  constexpr std::ptrdiff_t word = sizeof(float), left_row = tile_side * word, right_row = RightRow * word;
  __asm__ volatile("" : : : "memory");  // operands that registers hold go to memory
  clear_tile<0>();
  clear_tile<1>();
  clear_tile<2>();
  clear_tile<3>();
  for (int step = 0; step < steps; ++step) {
    load_tile<4, of_left>(left, left_row);
    load_tile<6>(right, right_row);
    multiply_tile<0, 4, 6>();
    load_tile<7>(right + tile_side, right_row);
    multiply_tile<1, 4, 7>();
    load_tile<5, of_left>(left + tile_floats, left_row);
    multiply_tile<2, 5, 6>();
    multiply_tile<3, 5, 7>();
    left += left_step;
    right += tile_side * RightRow;
    between(step);
  }
  store_tile<0>(into, IntoRow * word);
  store_tile<1>(into + tile_side, IntoRow * word);
  store_tile<2>(into + tile_side * IntoRow, IntoRow * word);
  store_tile<3>(into + tile_side * IntoRow + tile_side, IntoRow * word);
}
template <int RightRow, int IntoRow>
DISTATTN_INLINE void multiply_square(int steps, const float* left, const float* right, float* into) {
  multiply_square<RightRow, IntoRow>(steps, left, right, into, [](int) {});
}

/// e^x for x ≤ 0 as exp() has it, in fewer instructions: also 0 below −69, and NaN of NaN.
DISTATTN_INLINE Vector power_of_e(Vector x) {
  constexpr int rest_above_whole = 0x09;
  const auto twos = static_cast<__m512>(x * log2_e);
  const __mmask16 any = _mm512_cmp_ps_mask(static_cast<__m512>(x), _mm512_set1_ps(-69.32f), _CMP_NLT_UQ);
  const Vector rest(_mm512_maskz_reduce_ps(0xffff, twos, rest_above_whole));
  Vector power = 1.8775767e-3f;
  power = fused(power, rest, Vector(8.9893397e-3f));
  power = fused(power, rest, Vector(5.5826318e-2f));
  power = fused(power, rest, Vector(2.4015361e-1f));
  power = fused(power, rest, Vector(6.9315308e-1f));
  power = fused(power, rest, Vector(1.f));
  return Vector(_mm512_maskz_scalef_ps(any, static_cast<__m512>(power), twos));
}

/// Row i of a left operand, `steps` steps of it each.
DISTATTN_INLINE float* left_row(float* operand, int row, int steps) {
  return operand + row / tile_square * steps * left_step + row % tile_square * tile_side;
}

/// Rows of words as rows [first, first + padded) of a left operand, with zeros behind the last and behind their end.
template <class Changed>
inline void pack_left(const HeadRows<const float>& from, int count, int padded, int words, int first, float* operand,
                      Changed changed) {
  const int steps = (words + tile_side - 1) / tile_side;
  for (int i = 0; i < padded; ++i) {
    float* into = left_row(operand, first + i, steps);
    for (int w = 0; w < words; w += tile_side, into += left_step) {
      store(into, i < count ? changed(w, load_first(from.data + i * from.stride + w, words - w)) : Vector(0.f));
    }
  }
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
