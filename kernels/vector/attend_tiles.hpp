#pragma once
/// One panel of queries against a block of keys, by products of tiles: Sᵀ = K·Qᵀ and Oᵀ = Vᵀ·Pᵀ, which leave queries
/// along the lanes.

#include "kernels/vector/attend_scratch.hpp"
#include "kernels/vector/bias.hpp"
#include "kernels/vector/elements.hpp"
#include "kernels/vector/softmax.hpp"
#include "kernels/vector/tiles.hpp"
#include "kernels/vector/upcoming.hpp"
#include "kernels/vector/visible.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// The lanes at even places of two vectors that follow each other, and those at odd ones.
DISTATTN_INLINE Split split(Vector first, Vector second) {
  alignas(64) static constexpr std::int32_t places[] = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                                                        1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
  const auto a = static_cast<__m512>(first), b = static_cast<__m512>(second);
  return {Vector(_mm512_permutex2var_ps(a, _mm512_load_si512(places), b)),
          Vector(_mm512_permutex2var_ps(a, _mm512_load_si512(places + lanes), b))};
}

/// A vector of words from place `word` of a row of `dim` elements on, less what keys share.
DISTATTN_INLINE Vector less_shared(Vector words, const float* shared, int word, int dim) {
  const Bits bits = std::bit_cast<Bits>(words);
  const int x = in_word * word;
  const Split less = split(load_first(shared + x, dim - x), load_first(shared + x + lanes, dim - x - lanes));
  const auto rounded = [](Vector value) {
    const auto all = std::bit_cast<stdx::rebind_simd_t<std::uint32_t, Vector>>(value);
    return (all + 0x7fffu + (all >> 16 & 1u)) >> 16;
  };
  const Vector first = std::bit_cast<Vector>(bits << 16) - less.even;
  const Vector second = std::bit_cast<Vector>(bits & static_cast<std::int32_t>(0xffff0000u)) - less.odd;
  return std::bit_cast<Vector>(rounded(first) | rounded(second) << 16);
}

/// Packs keys [begin, end) of the block of keys that starts at `key`, which lie one behind the other; begin is a
/// multiple of a page's least tokens. Returns whether all values are finite.
inline bool pack_run(const AttendBlock& block, const AttendPass& pass, int key, int begin, int end,
                     const AttendScratch& scratch) {
  const int count = end - begin, padded = rounded_up(end, tile_square) - begin;
  const HeadRows<const float> k =
      operand_rows(keys_from(pass.k, block.dtype, begin), block.dtype, count, block.head_dim, scratch.widened);
  const auto pack = [&](auto changed) {
    pack_left(k, count, padded, words_of(block.head_dim), begin - key, scratch.keys, changed);
  };
  if (std::all_of(scratch.shared, scratch.shared + block.head_dim, [](float x) { return x == 0.f; })) {
    pack([](int, Vector words) { return words; });
  } else {
    pack([&](int word, Vector words) { return less_shared(words, scratch.shared, word, block.head_dim); });
  }
  return pack_terms(keys_from(pass.v, block.dtype, begin), block.dtype, count, padded, block.value_dim,
                    scratch.values.from(words_of(begin - key)), scratch.widened);
}

/// Makes the left operand Vᵀ of packed values.
inline void finish_keys(const AttendBlock& block, int key, int begin, int end, const AttendScratch& scratch) {
  const int first = words_of(begin - key);
  transpose_terms(scratch.values.from(first), words_of(rounded_up(end, tile_square) - begin), block.value_dim,
                  key_block / tile_square, scratch.value_columns + first / tile_side * left_step);
}

/// Products of 32 keys of a panel as they become scores, some rows at a time; what a query does not see is −∞, unless
/// `all` is seen. Raises `top` to the largest.
template <class Map, class Bias>
class TileScores {
 public:
  TileScores(const Map& map, const Bias& bias, const PanelKeys& keys, const float* shift)
      : map_(map), bias_(bias), keys_(keys), shift_{load(shift), load(shift + lanes)} {
    for (int v = 0; v < tile_vectors; ++v) top_[v] = largest_[v] = minus_infinity;
  }
  /// Begins with those at `scores`, of the keys from `key` on.
  DISTATTN_INLINE void begin(int key, float* scores) {
    key_ = key;
    scores_ = scores;
    row_ = 0;
    for (int v = 0; v < tile_vectors; ++v) largest_[v] = top_[v];
  }
  DISTATTN_INLINE void some(int rows) {
    // Of its own: what is stored as a score might be a member, as far as a compiler knows.
    const Map map = map_;
    const Bias bias = bias_;
    Vector largest[] = {largest_[0], largest_[1]};
    Bits distances[] = {bias.distances(0, key_ + row_), bias.distances(lanes, key_ + row_)};
    for (const int last = smaller(tile_square, row_ + rows); row_ < last; ++row_) {
#pragma GCC unroll 2
      for (int v = 0; v < tile_vectors; ++v) {
        float* const at = scores_ + row_ * panel_width + v * lanes;
        const Vector product = scored_product(load(at), map.factor(), shift_[v]);
        const Vector score = bias.added(map.score(product), distances[v]);
        distances[v] = bias.of_next_key(distances[v]);
        largest[v] = larger(score, largest[v]);
        store(at, score);
      }
    }
    for (int v = 0; v < tile_vectors; ++v) largest_[v] = largest[v];
  }
  DISTATTN_INLINE void end() {
    some(tile_square);
    const bool all = keys_.panel.all(key_, tile_square);
    for (int v = 0; v < tile_vectors; ++v) {
      top_[v] = all ? largest_[v] : hide(keys_, v, key_, scores_ + v * lanes, top_[v]);
    }
  }
  Vector top(int v) const { return top_[v]; }

 private:
  const Map& map_;
  const Bias& bias_;
  const PanelKeys& keys_;
  Vector shift_[tile_vectors], top_[tile_vectors], largest_[tile_vectors];
  int key_ = 0, row_ = tile_square;
  float* scores_ = nullptr;
};

/// Scores of a panel as they become weights, coefficients of values, two keys at a time: softmax() in pieces. Four keys
/// at a time if some are dropped: of the keys from `key` on, which is_whole.
template <bool drops>
class TileWeights {
 public:
  TileWeights(const float* scores, float* coefficients, int keys, const float* block_top, int row,
              const AttendScratch& scratch, float* rescale, const Drop& drop, int key)
      : scores_(scores),
        coefficients_(coefficients),
        left_(keys / in_word),
        row_(row),
        scratch_(scratch),
        drop_(drop),
        key_(key) {
    for (int v = 0; v < tile_vectors; ++v) {
      reference_[v] = raise_top(block_top, row, v, scratch, rescale);
      sums_[v] = rounded_[v] = 0.f;
    }
  }
  DISTATTN_INLINE void some(int words) {
    if constexpr (drops) {
      for (; words > 0 && left_ > 0; words -= 2) some_dropped();
      return;
    }
    for (; words > 0 && left_ > 0; --words, --left_) {
#pragma GCC unroll 2
      for (int v = 0; v < tile_vectors; ++v) store(coefficients_ + v * lanes, word(0, v));
      scores_ += in_word * panel_width;
      coefficients_ += panel_width;
    }
  }
  DISTATTN_INLINE void end() {
    some(left_);
    for (int v = 0; v < tile_vectors; ++v) {
      float *const sum = scratch_.sum + row_ + v * lanes, *const rounded = scratch_.rounded + row_ + v * lanes;
      store(sum, load(sum) + sums_[v]);
      store(rounded, load(rounded) + rounded_[v]);
    }
  }

 private:
  /// The weights of the keys of a word, which are added to the sums.
  DISTATTN_INLINE Vector word(int which, int v) {
    const float* const at = scores_ + which * in_word * panel_width + v * lanes;
    const Vector first = power_of_e(load(at) - reference_[v]);
    const Vector second = power_of_e(load(at + panel_width) - reference_[v]);
    const Vector word = joined(first, second);
    sums_[v] += first + second;
    rounded_[v] = multiplied(word, word_of_ones(), rounded_[v]);
    return word;
  }
  /// Sums keep what is dropped.
  DISTATTN_INLINE void some_dropped() {
    const auto keep = drop_.of_four_keys(0, key_);
#pragma GCC unroll 2
    for (int which = 0; which < 2; ++which) {
#pragma GCC unroll 2
      for (int v = 0; v < tile_vectors; ++v) {
        store(coefficients_ + which * panel_width + v * lanes, keep(word(which, v), static_cast<unsigned>(which), v));
      }
    }
    scores_ += 2 * in_word * panel_width;
    coefficients_ += 2 * panel_width;
    left_ -= 2;
    key_ += 2 * in_word;
  }

  const float* scores_;
  float* coefficients_;
  int left_, row_;
  const AttendScratch& scratch_;
  const Drop& drop_;
  int key_;
  Vector reference_[tile_vectors], sums_[tile_vectors], rounded_[tile_vectors];
};

/// O = rescale·O + P·V for a range of keys of the block of keys where a hidden value is no number: touches none but
/// those that a query sees.
inline void add_seen(const AttendBlock& block, const PanelKeys& keys, int row, int block_key, Range range,
                     const float* weights, const float* rescale, const AttendScratch& scratch) {
  const auto value = [&](int key, int x) { return element_of(scratch.values.at(words_of(key), x), key); };
  for (int i = 0; i < panel_width; ++i) {
    for (int x = 0; x < block.value_dim; ++x) {
      float& sum = *scratch.output.at(row + i, x);
      sum *= rescale[i];
      for (int key = range.from; key < range.to; ++key) {
        if (!keys.sees(i, block_key + key)) continue;
        sum += element_of(weights + words_of(key - range.from) * panel_width + i, key) * value(key, x);
      }
    }
  }
}

/// Weights of a panel whose values are still to be added.
struct Pending {
  float* sums = nullptr;  ///< null: none
  const float *values = nullptr, *weights = nullptr;
  int steps = 0, value_dim = 0;
  alignas(64) float rescale[panel_width];

  /// O = rescale·O + P·V. Calls between() with each step.
  template <class Between>
  DISTATTN_INLINE void add(Between between) {
    const Vector factors[] = {load(rescale), load(rescale + lanes)};
    add_columns<panel_width, Reuse::none>(
        values, key_block / tile_square, steps, weights, value_dim, sums,
        [&](int v, Vector before) { return before * factors[v]; }, between);
    sums = nullptr;
  }
};

/// Adds what is still to be added.
inline void finish_panels(Pending& pending) {
  if (pending.sums != nullptr) pending.add([](int) {});
}

/// One panel of queries against keys [first, last) of the block of packed keys that starts at `block_key`, in whole
/// steps.
template <class Map, class Bias>
inline void attend_panel(const Map& map, const Bias& bias, const AttendBlock& block, const AttendPass& pass,
                         const PanelKeys& keys, int row, int block_key, int first, int last, bool finite,
                         const AttendScratch& scratch, Upcoming& next, Pending& pending) {
  const int steps = depth_words(block.head_dim) / tile_side, rows_a_step = (tile_square + steps - 1) / steps;
  const float* const queries = scratch.queries + row * depth_words(block.head_dim);
  TileScores tile(map, bias, keys, scratch.shift + row);
  for (int key = first; key < last; key += tile_square) {
    next.keys.some();
    next.values.some();
    float* const scores = scratch.scores + (key - block_key) * panel_width;
    multiply_square<panel_width, panel_width, Reuse::none>(steps, left_row(scratch.keys, key - block_key, steps),
                                                           queries, scores,
                                                           [&](int) DISTATTN_INLINED { tile.some(rows_a_step); });
    if (key > first) tile.end();
    tile.begin(key, scores);
  }
  tile.end();
  alignas(64) float block_top[panel_width], rescale[panel_width];
  for (int v = 0; v < tile_vectors; ++v) store(block_top + v * lanes, tile.top(v));
  const int from = first - block_key, to = last - block_key;
  float* const scores = scratch.scores + from * panel_width;
  float* weights = scratch.weights[pending.weights == scratch.weights[0] ? 1 : 0];
  const Drop drop(block.dropout, {nullptr, scratch.positions + row, pass.positions});
  const auto weigh = [&](auto made) {
    if (pending.sums != nullptr) pending.add([&](int) DISTATTN_INLINED { made.some(2); });
    made.end();
  };
  if (block.dropout.limit == 0) {
    weigh(TileWeights<false>(scores, weights, to - from, block_top, row, scratch, rescale, drop, first));
  } else if (drop.is_whole(first)) {
    weigh(TileWeights<true>(scores, weights, to - from, block_top, row, scratch, rescale, drop, first));
  } else {
    finish_panels(pending);
    softmax(scores, scratch.scores + words_of(from) * panel_width, to - from, block_top, row, scratch, rescale);
    drop_weights(drop, scratch.scores, block_key, first, last);
    std::copy_n(scratch.scores + words_of(from) * panel_width, words_of(to - from) * panel_width, weights);
  }
  const bool harmless = finite || keys.panel.all(first, last - first) ||
                        all_finite(scratch.values.from(words_of(from)), last - first, block.value_dim);
  if (!harmless) return add_seen(block, keys, row, block_key, {from, to}, weights, rescale, scratch);
  pending.sums = scratch.output.at(row, 0);
  pending.values = scratch.value_columns + from / tile_square * left_step;
  pending.weights = weights;
  pending.steps = (to - from) / tile_square;
  pending.value_dim = block.value_dim;
  std::copy_n(rescale, panel_width, pending.rescale);
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
