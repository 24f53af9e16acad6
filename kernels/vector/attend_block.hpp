#pragma once
/// Forward attention of one block of queries of one or several heads: FlashAttention-2's online softmax (Dao 2023,
/// Algorithm 1), with queries along the lanes of vectors, so that the softmax has no horizontal operation and all its
/// state is whole vectors.
///
/// For each panel of queries and block of keys: Sᵀ = map((factor·K)·Qᵀ) (kernels/scores.hpp), Pᵀ = e^(Sᵀ − top),
/// O = e^(old − top)·O + P·V, the last with the head dimension along the lanes: values are taken as they lie. Scores
/// are rounded as in a backward pass (of scaled keys, without what they share, which is added at the end): a gradient
/// is a difference of terms that only the same weights let cancel. They are nowhere taken to base 2: a row that sees
/// one key has its score as lse, to the last bit, however large that is.
///
/// Weights that are rounded before values are multiplied by them, as words of pairs are, are added up rounded, too: o
/// is a mean of values, so that what all of these share is not rounded. The lse has the sum of weights as they are.
///
/// A row's sums begin anew when they have become long; what they were is settled, together with a carry. Rounding grows
/// with the blocks of keys in a sum and with the sums, not with the keys.

#include "kernels/raise.hpp"
#include "kernels/scores.hpp"
#include "kernels/vector/attend_scratch.hpp"
#include "kernels/vector/bias.hpp"
#include "kernels/vector/block_panels.hpp"
#include "kernels/vector/lse.hpp"
#include "kernels/vector/packing.hpp"
#include "kernels/vector/row_panels.hpp"
#include "kernels/vector/shared_key.hpp"
#include "kernels/vector/vector_kernels.hpp"
#include "kernels/vector/visible.hpp"
#if defined(__AMX_BF16__)
#include "kernels/vector/attend_tiles.hpp"
#else
#include "kernels/vector/attend_panel.hpp"
#endif

namespace distattn::kernels::vector::DISTATTN_ISA {

/// Begins the sums of rows [first, last).
inline void begin_sums(const AttendBlock& block, int first, int last, const AttendScratch& scratch) {
  clear_rows(scratch.output.from(first), last - first, block.value_dim);
  std::fill(scratch.top + first, scratch.top + last, minus_infinity);
  for (int i = first; i < last; ++i) scratch.sum[i] = scratch.rounded[i] = scratch.blocks[i] = 0.f;
}

/// Packs the queries of one head and begins their sums.
inline void begin_head(const AttendBlock& block, const AttendScratch& scratch) {
  for (int row = 0; row < block.queries; row += panel_width) {
    const int rows = smaller(panel_width, block.queries - row);
    const int next = row + rows, next_rows = smaller(panel_width, block.queries - next);
    Prefetch(rows_from(block.q, block.dtype, next), block.dtype, next_rows, block.head_dim).all();
    const HeadRows<const float> q =
        operand_rows(rows_from(block.q, block.dtype, row), block.dtype, rows, block.head_dim, scratch.widened);
    float* const into = scratch.queries + row * depth_words(block.head_dim);
    pack_transposed<panel_width>(q, rows, words_of(block.head_dim), into);
    clear_depth(into, block.head_dim);
  }
  begin_sums(block, 0, padded_queries(block), scratch);
  for (int i = 0; i < padded_queries(block); ++i) {
    scratch.positions[i] = static_cast<std::int32_t>(block.positions.at(smaller(i, block.queries - 1)));
  }
  for (int i = 0; i < block.queries; ++i) {
    const bool carried = block.carry && block.lse[i] != minus_infinity;
    scratch.settled_top[i] = carried ? block.lse[i] : minus_infinity;
    scratch.settled_sum[i] = carried ? 1.f : 0.f;
    scratch.settled_unit[i] = carried ? sum_of(widened_low(block.lse_low, i)) : 1.f;
  }
}

inline void attend_begin(const AttendBlock& block, std::byte* memory) {
  const AttendScratch scratch(memory, block.head_dim, block.value_dim);
  *scratch.shared_of = {};
  for_each_head(block, scratch, begin_head);
}

/// The same of keys that may lie in several pages, which are made of whole tiles.
inline bool pack_keys(const AttendBlock& block, const AttendPass& pass, int key, int begin, int end,
                      const AttendScratch& scratch) {
  bool finite = true;
  for (int from = begin, to; from < end; from = to) {
    to = end_of_run(pass.k, from, end);
    finite = pack_run(block, pass, key, from, to, scratch) && finite;
  }
  return finite;
}

/// Whether a row's carry is all that there is.
inline bool is_carry(const AttendBlock& block, int row, const AttendScratch& scratch) {
  return block.carry && scratch.sum[row] == 0.f && scratch.settled_sum[row] == 1.f &&
         scratch.settled_top[row] == block.lse[row];
}

/// Writes the lse of `count` rows from `first` on, but for those that keep their carry.
inline void store_lse(const AttendBlock& block, int first, int count, const Lse<Vector>& lse,
                      const AttendScratch& scratch) {
  alignas(64) float high[lanes], low[lanes];
  store(high, lse.high);
  store(low, lse.low);
  for (int i = 0; i < count; ++i) {
    if (is_carry(block, first + i, scratch)) continue;
    block.lse[first + i] = high[i];
    store_low(block.lse_low, first + i, {high[i], low[i]});
  }
}

/// Adds the sums of rows [first, last) of one head to what is settled, whose outputs stand in o. `last_time`: makes (o,
/// lse) of it; a row that has seen no key keeps both, or gets (0, −∞).
template <bool last_time>
inline void settle(const AttendBlock& block, int first, int last, const AttendScratch& scratch) {
  float *const kept = scratch.scores, *const taken = scratch.top;  // kept: below 0 where o holds nothing yet
  if (block.max_logit != nullptr) raise_to(*block.max_logit, scratch.top + first, scratch.sum + first, last - first);
  for (int i = first; i < last; i += lanes) {
    const int count = last - i;
    const Vector top = load_first(scratch.top + i, count), sum = load_first(scratch.sum + i, count);
    const Vector old_top = load_first(scratch.settled_top + i, count);
    const Vector old_sum = load_first(scratch.settled_sum + i, count);
    const Vector new_top = larger(old_top, top), reference = larger(new_top, lowest);
    Vector keep = exp(old_top - reference) * load_first(scratch.settled_unit + i, count);
    Vector take = exp(top - reference);
    const Vector total = old_sum * keep + sum * take;
    if constexpr (last_time) {
      keep /= total;
      take /= total;
      const Lse<Vector> lse = lse_of(reference, total);
      store_lse(block, i, smaller(count, lanes), {replace(same_lanes(total, 0.f), lse.high, minus_infinity), lse.low},
                scratch);
    } else {
      store_first(scratch.settled_top + i, new_top, count);
      store_first(scratch.settled_sum + i, total, count);
      store_first(scratch.settled_unit + i, Vector(1.f), count);
    }
    if (block.dropout.limit != 0) take *= static_cast<float>(block.dropout.kept);
    const Vector rounded = pairs ? load_first(scratch.rounded + i, count) : Vector(1.f);
    if constexpr (pairs) take *= replace(same_lanes(rounded, 0.f), sum / rounded, 1.f);
    store_first(kept + i, replace(same_lanes(old_sum, 0.f), keep, -1.f), count);
    store_first(taken + i, take, count);
  }
  put_rows(scratch.output.from(first), last - first, block.value_dim,
           {block.o.data + first * block.o.stride, block.o.stride}, [&](int i, int, Vector output, auto before) {
             const float keep = kept[first + i], take = taken[first + i];
             const bool empty = scratch.sum[first + i] == 0.f;
             if (keep < 0.f) return empty ? Vector(0.f) : output * take;
             return empty ? before() * keep : before() * keep + output * take;
           });
}

/// Settles rows of one head whose sums have become long.
inline void settle_long(const AttendBlock& block, const AttendScratch& scratch) {
  const auto is_long = [&](int row) { return scratch.blocks[row] >= long_sum; };
  for (int first = 0, last = 0; first < block.queries; first = last) {
    for (; first < block.queries && !is_long(first); ++first) continue;
    for (last = first; last < block.queries && is_long(last); ++last) continue;
    if (first == last) return;
    settle<false>(block, first, last, scratch);
    begin_sums(block, first, last, scratch);
  }
}

/// Counts what rows of one head see of the keys [first, last): what is settled when depends on nothing but a row's own
/// keys.
inline void count_blocks(const AttendBlock& block, const AttendPass& pass, int first, int last,
                         const AttendScratch& scratch) {
  for (int i = 0; i < block.queries; ++i) {
    const Range seen{bigger(pass.begin[i], first), smaller(pass.end[i], last)};
    if (seen.empty()) continue;
    scratch.blocks[i] += static_cast<float>((seen.to + key_block - 1) / key_block - seen.from / key_block);
  }
}

/// Finds what the keys of a pass have in common, and what it adds to the products of each row, unless the pass before
/// was over the same keys.
inline void share_key(const AttendBlock& block, const AttendPass& pass, const AttendScratch& scratch) {
  SharedOf& of = *scratch.shared_of;
  if (of.k == pass.k.data && of.pages == pass.k.pages.pages && of.keys == pass.keys) return;
  of = {pass.k.data, pass.k.pages.pages, pass.keys};
  bool any = find_shared_key(pass.k, block.dtype, pass.keys, block.head_dim, scratch.widened, scratch.shared);
  const auto row_of = [&](const AttendBlock& head, int i) {
    return widened(rows_from(head.q, head.dtype, i), head.dtype, 1, head.head_dim, scratch.widened).data;
  };
  for_each_head(block, scratch, [&](const AttendBlock& head, const AttendScratch&) {
    for (int i = 0; any && i < head.queries; ++i) any = is_finite(row_of(head, i), head.head_dim);
  });
  if (!any) std::fill_n(scratch.shared, block.head_dim, 0.f);
  for_each_head(block, scratch, [&](const AttendBlock& head, const AttendScratch& own) {
    std::fill_n(own.shift, padded_queries(head), 0.f);
    for (int i = 0; any && i < head.queries; ++i) {
      own.shift[i] = shared_product(row_of(head, i), head.head_dim, factor_of<float>(head.scores), own.shared);
    }
  });
}

template <class Bias, class Map>
inline void attend_keys(const Map& map, const AttendBlock& block, const AttendPass& pass, std::byte* memory,
                        const StopFlag& stop) {
  const AttendScratch scratch(memory, block.head_dim, block.value_dim);
  BlockPanels panels(pass, block.queries);
  const auto [first, last] = panels.seen();
  if (first < last) share_key(block, pass, scratch);
  // Blocks of keys begin at multiples of key_block whatever the queries see: a query's sums do not depend on its
  // neighbours.
  for (int key = first / key_block * key_block; key < last; key += key_block) {
    if (stop.load(std::memory_order_relaxed)) return;
    if (key % settling_keys == 0 || key <= first) {
      for_each_head(block, scratch, [&](const AttendBlock& head, const AttendScratch& own) {
        settle_long(head, own);
        count_blocks(head, pass, key, key / settling_keys * settling_keys + settling_keys, own);
      });
    }
    const int begin = bigger(first / tile_rows * tile_rows, key), end = smaller(last, key + key_block);
    if (!panels.look_at(begin, end)) continue;
    const bool finite = pack_keys(block, pass, key, begin, end, scratch);
    finish_keys(block, key, begin, end, scratch);
    Pending pending;
    Upcoming next(block, pass, end, smaller(key_block, last - end));
    for_each_head(block, scratch, [&](const AttendBlock& head, const AttendScratch& own) {
      for (int row = 0; row < head.queries; row += panel_width) {
        const Bias bias({head.alibi_slopes, own.positions + row, pass.positions});
        const Range seen = panels[row].panel.within(key, end);
        if (seen.empty()) continue;
        const Range whole = whole_words({seen.from - key, seen.to - key});
        attend_panel(map, bias, head, pass, panels[row], row, key, key + whole.from, key + whole.to, finite, own, next,
                     pending);
      }
    });
    finish_panels(pending);
  }
}

inline void attend_pass(const AttendBlock& block, const AttendPass& pass, std::byte* memory, const StopFlag& stop) {
  [[maybe_unused]] const ProductRegisters registers;
  with_scores<float>(block.scores, [&](const auto& map) {
    with_bias(map, block.alibi_slopes, [&]<class Bias>() { attend_keys<Bias>(map, block, pass, memory, stop); });
  });
}

/// Writes (o, lse). A query that saw no key keeps its carry, or gets (0, −∞).
inline void attend_end(const AttendBlock& block, std::byte* memory) {
  for_each_head(block, AttendScratch(memory, block.head_dim, block.value_dim),
                [](const AttendBlock& head, const AttendScratch& own) { settle<true>(head, 0, head.queries, own); });
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
