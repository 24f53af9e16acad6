#pragma once
/// What a thread keeps while it computes a block of queries of some heads: sizes of blocks, a place for each operand.

#include "kernels/vector/packing.hpp"
#include "kernels/vector/sum_rows.hpp"
#include "kernels/vector/vector_kernels.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

inline constexpr int most_rows = 1152;
inline constexpr int most_panels = most_rows / panel_width;
static_assert(most_rows % panel_width == 0 && most_rows <= key_block * panel_width && panel_width <= key_block);

/// Blocks of keys after which a sum is long, and keys after which sums are looked at, at the latest.
inline constexpr int long_sum = 64, settling_keys = long_sum * key_block;

/// Rows of a block: what fits block_floats, a whole number of panels.
inline int attend_rows(int head_dim, int value_dim) {
  const int rows = smaller(most_rows, block_floats / (head_dim + value_dim));
  return bigger(panel_width, rows / panel_width * panel_width);
}

/// Rows of each of a block's heads, all of which begin with a panel.
inline int padded_queries(const AttendBlock& block) { return rounded_up(block.queries, panel_width); }

/// The keys of which `shared` and `shift` tell.
struct SharedOf {
  const void* k = nullptr;
  const std::int32_t* pages = nullptr;  ///< requests share the first page of a cache
  std::int64_t keys = 0;
};

/// A block's operands and state, laid out in its thread's scratch.
struct AttendScratch {
  float* queries;  // [panel][head_dim in words][panel_width]
  SumRows output;
  SharedOf* shared_of;
  float* shared;            // [head_dim] what the keys of the pass have in common
  float* shift;             // [row] what that adds to products
  std::int32_t* positions;  // [row] of the queries
  float* top;               // [row] largest score so far
  float* sum;               // [row] Σ e^(score − top)
  float* rounded;           // [row] the same of weights as values are multiplied by them; where that is sum, it is sum
  float* blocks;            // [row] of keys in the sum
  float* settled_top;       // [row] as top and sum, of what is settled: its output stands in o
  float* settled_sum;
  float* settled_unit;   // [row] what both count in: e^lse_low of a carry, 1 once sums were added
  float* keys;           // [tile][head_dim in words][tile_rows], as pack_keys_transposed() makes them
  RowPanels values;      // [key] in words of keys
  float* value_columns;  // of tiles alone: the same as a left operand whose rows are columns of values
  float* scores;         // [key_block][panel_width], then weights in words of keys
  float* weights[2];     // of tiles alone: in words of keys, of a panel and of the one before
  float* widened;        // [key_block][dim]: where 16-bit rows are widened
  std::size_t bytes;

  AttendScratch(std::byte* memory, int head_dim, int value_dim) {
    const int rows = attend_rows(head_dim, value_dim);
    Carver carve(memory);
    queries = carve.floats(rows * depth_words(head_dim));
    output = carve_sums(carve, rows, value_dim);
    top = carve.floats(rows);
    sum = carve.floats(rows);
    rounded = pairs ? carve.floats(rows) : sum;
    blocks = carve.floats(rows);
    settled_top = carve.floats(rows);
    settled_sum = carve.floats(rows);
    settled_unit = carve.floats(rows);
    keys = carve.floats(key_block * depth_words(head_dim));
    values = carve_rows(carve, words_of(key_block), value_dim);
    value_columns = by_tiles ? carve.floats(words_of(key_block) * rounded_up(value_dim, tile_square)) : nullptr;
    scores = carve.floats(key_block * panel_width);
    for (float*& some : weights) some = by_tiles ? carve.floats(words_of(key_block) * panel_width) : nullptr;
    widened = carve.floats(key_block * bigger(head_dim, value_dim));
    shared_of = reinterpret_cast<SharedOf*>(carve.floats(sizeof(SharedOf) / sizeof(float)));
    shared = carve.floats(rounded_up(head_dim, lanes));
    shift = carve.floats(rows);
    positions = carve.integers(rows);
    bytes = carve.bytes();
  }
};

/// One of a block's heads as a block of its own, which packs the same keys into the same place.
struct AttendHead {
  AttendBlock block;
  AttendScratch scratch;

  AttendHead(const AttendBlock& all, int head, const AttendScratch& shared) : block(all), scratch(shared) {
    block.heads = 1;
    block.q = rows_from({all.q.data, all.q_head}, all.dtype, head);
    block.q.stride = all.q.stride;
    block.o.data += head * all.o_head;
    block.lse += head * all.lse_head;
    if (block.lse_low != nullptr) block.lse_low += head * all.lse_head;
    if (block.alibi_slopes != nullptr) block.alibi_slopes += head;
    if (block.max_logit != nullptr) block.max_logit += head;
    block.dropout.head += static_cast<std::uint32_t>(head);
    const int row = head * padded_queries(all);
    scratch.queries += row * depth_words(all.head_dim);
    scratch.output = shared.output.from(row);
    for (float** state : {&scratch.shift, &scratch.top, &scratch.sum, &scratch.rounded, &scratch.blocks,
                          &scratch.settled_top, &scratch.settled_sum, &scratch.settled_unit}) {
      *state += row;
    }
    scratch.positions += row;
  }
};

/// Calls each(block, scratch) for every head of a block.
template <class Each>
DISTATTN_INLINE void for_each_head(const AttendBlock& block, const AttendScratch& scratch, Each each) {
  for (int head = 0; head < block.heads; ++head) {
    const AttendHead one(block, head, scratch);
    each(one.block, one.scratch);
  }
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
