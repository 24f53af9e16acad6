#pragma once
/// The shapes of register tiles and of the blocks around them, and small arithmetic on them.

#include "kernels/vector/simd.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int vector_registers = 32;
#else
inline constexpr int vector_registers = 16;
#endif

#if defined(__AMX_BF16__)
/// Whether products are made of the processor's tiles (tiles.hpp).
inline constexpr bool by_tiles = true;
#else
inline constexpr bool by_tiles = false;
#endif
/// Rows and columns of what such products make at once, and elements of each step of a sum.
inline constexpr int tile_square = 32;

/// Tiles of scores: rows × vectors that leave registers for a panel row and a broadcast. Three vectors a row need fewer
/// loads a multiplication than two (on processors with two loads a cycle the tile 8×2 is limited by them).
inline constexpr int tile_rows = by_tiles ? tile_square : vector_registers == 32 ? 8 : 4;
inline constexpr int tile_vectors = by_tiles ? tile_square / lanes : 3;
inline constexpr int panel_width = tile_vectors * lanes;

/// Tiles of sums over keys or over queries, with vectors along the head dimension: 64 of it where there are registers.
inline constexpr int sum_rows = by_tiles ? lanes : 6;
inline constexpr int sum_vectors = vector_registers == 32 ? 4 : 2;
inline constexpr int sum_width = sum_vectors * lanes;
static_assert(panel_width % sum_rows == 0);

/// Keys whose scores against one panel stay in the first-level cache. By tiles they fill it: there more is gained where
/// each panel and each square, whose sums leave and enter the registers, has many keys.
inline constexpr int key_block = by_tiles ? 384 : 128;
static_assert(key_block % tile_rows == 0);

/// Floats of operands that a block of queries keeps: about what a second-level cache has.
inline constexpr int block_floats = 1152 * 256;

/// Half-open.
struct Range {
  int from = 0, to = 0;

  constexpr bool empty() const { return from >= to; }
};

constexpr int smaller(int a, int b) { return a < b ? a : b; }
constexpr int bigger(int a, int b) { return a > b ? a : b; }
constexpr int rounded_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

/// Calls call.operator()<Count>() for a count of 1 to Most.
template <int Most, class Call>
DISTATTN_INLINE void by_count(int count, Call call) {
  if constexpr (Most > 1) {
    if (count < Most) return by_count<Most - 1>(count, call);
  }
  call.template operator()<Most>();
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
