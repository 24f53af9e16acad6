#pragma once
/// Forward attention of few queries: one a sequence while tokens are decoded one by one, some while a draft is checked.
/// Bringing keys and values from memory is then what takes time. All query heads of a key head take them together, so
/// that they come once; both are multiplied where they lie, for several key heads by turns.
///
/// For each row and block of keys: s = map(K·(factor·q)), which is kernels/scores.hpp's, p = e^(s − top),
/// o = e^(old − top)·o + p·V.

#include <algorithm>
#include <array>
#include <span>

#include "distattn/index.hpp"
#include "kernels/raise.hpp"
#include "kernels/scores.hpp"
#include "kernels/vector/bias.hpp"
#include "kernels/vector/drop.hpp"
#include "kernels/vector/few_tiles.hpp"
#include "kernels/vector/lane_products.hpp"
#include "kernels/vector/lse.hpp"
#include "kernels/vector/packing.hpp"
#include "kernels/vector/scratch.hpp"
#include "kernels/vector/vector_kernels.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// Most rows of a block: their weights and sums stay in the caches beside the keys.
inline constexpr int most_few_rows = 32;
static_assert(few_queries <= most_few_rows);

/// Sums of a block over some keys: what few_end merges. Laid out in memory of the caller.
struct FewSums {
  float* output = nullptr;  // [row][stride]
  int stride = 0;
  float* top = nullptr;  // [row] largest score
  float* sum = nullptr;  // [row] Σ e^(score − top)
  std::size_t bytes = 0;

  FewSums() = default;
  FewSums(std::byte* memory, int rows, int value_dim) : stride(rounded_up(value_dim, lanes)) {
    Carver carve(memory);
    output = carve.floats(rows * stride);
    top = carve.floats(rows);
    sum = carve.floats(rows);
    bytes = carve.bytes();
  }
  float* row(int i) const { return output + i * stride; }
};

struct FewScratch {
  int query_stride = 0;
  float* queries = nullptr;  // [row][query_stride], times the scores' factor, zeros behind head_dim
  float* scores = nullptr;   // [row][key_block]
  float* output = nullptr;   // [row][value_dim, rounded up] of one block of keys
  std::size_t bytes = 0;

  FewScratch() = default;
  FewScratch(std::byte* memory, int rows, int head_dim, int value_dim) : query_stride(rounded_up(head_dim, lanes)) {
    Carver carve(memory);
    queries = carve.floats(rows * query_stride);
    scores = carve.floats(rows * key_block);
    output = carve.floats(rows * rounded_up(value_dim, lanes));
    bytes = carve.bytes();
  }
};

inline FewScratch scratch_of(const FewBlock& block, std::byte* memory) {
  return {memory, block.rows(), block.head_dim, block.value_dim};
}

/// What a head's memory holds, found once a pass.
struct FewMemory {
  FewScratch scratch;
  FewSums sums;

  FewMemory() = default;
  explicit FewMemory(const FewHead& head)
      : scratch(scratch_of(head.block, head.scratch)), sums(head.sums, head.block.rows(), head.block.value_dim) {}
};

/// Lays the block's queries out and begins their sums.
inline void few_begin(const FewBlock& block, std::byte* memory, std::byte* sums_memory) {
  const FewScratch scratch = scratch_of(block, memory);
  const FewSums sums(sums_memory, block.rows(), block.value_dim);
  const auto factor = factor_of<float>(block.scores);
  for (int i = 0; i < block.rows(); ++i) {
    const HeadRows<const void> head = rows_from({block.q.data, block.q_head}, block.dtype, i / block.queries);
    float* const query = scratch.queries + i * scratch.query_stride;
    with_element_rows(rows_from({head.data, block.q.stride}, block.dtype, i % block.queries), block.dtype, [&](auto q) {
      for_each_vector(block.head_dim, [&](int x, auto load_some) { store(query + x, load_some(q.data + x) * factor); });
    });
    for (int x = 0; x < block.value_dim; x += lanes) store(sums.row(i) + x, 0.f);
    sums.top[i] = minus_infinity;
    sums.sum[i] = 0.f;
  }
}

/// Calls each.operator()<Rows>(row, ahead) for `rows` rows, a few at a time; only the first ones ask for what follows.
template <class Each>
DISTATTN_INLINE void by_few_rows(int rows, Ahead& ahead, Each each) {
  NothingAhead nothing;
  for (int row = 0; row < rows; row += few_rows) {
    by_count<few_rows>(smaller(few_rows, rows - row), [&]<int Rows>() {
      if (row == 0) return each.template operator()<Rows>(row, ahead);
      each.template operator()<Rows>(row, nothing);
    });
  }
}

/// Products of `count` keys and `Rows` rows from `row` on into scratch.scores from `at` on.
template <int Rows, class Element, class Next>
DISTATTN_INLINE void multiply_rows(const FewBlock& block, const HeadRows<const Element>& k, int count, int row, int at,
                                   const FewScratch& scratch, Next& ahead) {
  constexpr int lines = bigger(1, few_keys * lanes * static_cast<int>(sizeof(Element)) / Ahead::line);
  const float* const queries = scratch.queries + row * scratch.query_stride;
  float* scores = scratch.scores + row * key_block + at;
  for (int key = 0; key < count; key += few_keys, scores += few_keys) {
    const Element* rows[few_keys];
    for (int j = 0; j < few_keys; ++j) rows[j] = k.data + smaller(key + j, count - 1) * k.stride;
    multiply_lanes<Rows>(
        block.head_dim,
        [&](int j, int x, auto load_key) {
          if (j == 0) ahead.template ask<lines>();
          return load_key(rows[j] + x);
        },
        [&](int i, int x) { return load(queries + i * scratch.query_stride + x); },
        [&](int i, Quad products) { store_quad(scores + i * key_block, products); });
  }
}

/// The same of all rows.
template <class Element>
DISTATTN_INLINE void multiply_keys(const FewBlock& block, const HeadRows<const Element>& k, int count, int at,
                                   const FewScratch& scratch, Ahead& ahead) {
  by_few_rows(block.rows(), ahead,
              [&]<int Rows>(int row, auto& next) { multiply_rows<Rows>(block, k, count, row, at, scratch, next); });
}

/// Turns `count` scores of a row, rounded up to whole vectors, into e^(score − top) and raises top and sum to include
/// them. Returns what the output so far is to be multiplied by.
inline float weigh(float* scores, int count, float& top, float& sum) {
  Vector largest(minus_infinity);
  for (int j = 0; j < count; j += lanes) largest = larger(load(scores + j), largest);
  const float before = top;
  const float most = stdx::hmax(largest);  // of numbers: larger() leaves NaN out
  top = most > top ? most : top;
  const float reference = top > lowest ? top : lowest;  // of a row that has seen nothing, as in softmax()
  Vector sums(0.f);
  for (int j = 0; j < count; j += lanes) {
    const Vector weight = exp(load(scores + j) - reference);
    sums += weight;
    store(scores + j, weight);
  }
  const float factor = exp(before - reference);
  sum = sum * factor + stdx::reduce(sums);
  return factor;
}

/// Vectors of outputs that stay in registers while a tile's values go by.
inline constexpr int few_vectors = 4;

/// Elements of a row of bf16 values whose sums over one block of keys are kept split (Split), two vectors at a time.
template <class Element>
constexpr int split_elements(int dim) {
  return widens_split<Element> ? dim / (few_vectors * lanes) * (few_vectors * lanes) : 0;
}

/// Adds `count` values to `Vectors` vectors of the outputs of `Rows` rows from x on: load_values(row, values) takes
/// them.
template <int Rows, int Vectors, class Element, class Next, class Load>
DISTATTN_INLINE void add_vectors(const HeadRows<const Element>& v, int count, int x, const float* weights,
                                 float* output, int stride, Next& ahead, Load load_values) {
  Vector sums[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int u = 0; u < Vectors; ++u) sums[i][u] = load(output + i * stride + x + u * lanes);
  }
  const Element* row = v.data + x;
  for (int j = 0; j < count; ++j, row += v.stride) {
    ahead.template ask<(Vectors * lanes * static_cast<int>(sizeof(Element)) + Ahead::line - 1) / Ahead::line>();
    Vector values[Vectors];
    load_values(row, values);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const Vector weight(weights[i * key_block + j]);
#pragma GCC unroll 8
      for (int u = 0; u < Vectors; ++u) sums[i][u] = fused(weight, values[u], sums[i][u]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int u = 0; u < Vectors; ++u) store(output + i * stride + x + u * lanes, sums[i][u]);
  }
}

/// Adds `count` values to the outputs of `Rows` rows.
template <int Rows, class Element, class Next>
DISTATTN_INLINE void add_weighted(const HeadRows<const Element>& v, int count, int dim, const float* weights,
                                  float* output, int stride, Next& ahead) {
  int x = 0;
  for (; x + few_vectors * lanes <= dim; x += few_vectors * lanes) {
    add_vectors<Rows, few_vectors>(v, count, x, weights, output, stride, ahead,
                                   [](const Element* row, Vector(&values)[few_vectors]) {
#pragma GCC unroll 8
                                     for (int u = 0; u < few_vectors; u += 2) {
                                       if constexpr (widens_split<Element>) {
                                         const Split split = load_split(row + u * lanes);
                                         values[u] = split.even;
                                         values[u + 1] = split.odd;
                                       } else {
                                         values[u] = load_elements(row + u * lanes);
                                         values[u + 1] = load_elements(row + (u + 1) * lanes);
                                       }
                                     }
                                   });
  }
  for (; x < dim; x += lanes) {
    add_vectors<Rows, 1>(v, count, x, weights, output, stride, ahead, [&](const Element* row, Vector(&values)[1]) {
      values[0] = load_first_elements(row, dim - x);
    });
  }
}

/// Makes scores of a query's products with `count` keys, rounded up to whole vectors, from `key` on.
template <class Map, class Bias>
DISTATTN_INLINE void make_scores(const Map& map, const Bias& bias, float* products, int key, int count) {
  if constexpr (Map::is_linear && std::is_same_v<Bias, NoBias>) return;
  for (int j = 0; j < count; j += lanes) {
    store(products + j, bias.at_keys(map.score(load(products + j)), 0, key + j));
  }
}

/// The weights of `count` keys from `key` on, of which query i sees those in seen[i], and zeros for their values. What
/// there is in sums so far then belongs to the new top.
inline void weigh_keys(const FewHead& head, const FewMemory& memory, int key, int count, const Range* seen) {
  const FewBlock& block = head.block;
  const auto& [scratch, sums] = memory;
  const int end = rounded_up(count, lanes);
  for (int i = 0; i < block.rows(); ++i) {
    const Range& range = seen[i % block.queries];
    float* const scores = scratch.scores + i * key_block;
    const auto position = static_cast<std::int32_t>(block.positions.at(i % block.queries));
    const double* const slope = block.alibi_slopes == nullptr ? nullptr : block.alibi_slopes + i / block.queries;
    with_scores<float>(block.scores, [&](const auto& map) {
      with_bias(map, slope, [&]<class Bias>() {
        make_scores(map, Bias({slope, &position, head.pass.positions}), scores, key, count);
      });
    });
    std::fill(scores, scores + (range.empty() ? end : range.from), minus_infinity);
    if (!range.empty()) std::fill(scores + range.to, scores + end, minus_infinity);
    const float factor = weigh(scores, count, sums.top[i], sums.sum[i]);
    if (block.dropout.limit != 0) {
      HeadDropout dropout = block.dropout;
      dropout.head += static_cast<std::uint32_t>(i / block.queries);
      const Drop drop(dropout, {nullptr, &position, head.pass.positions});
      for (int j = 0; j < count; j += lanes) store(scores + j, load(scores + j) * drop.at_keys(0, key + j));
    }
    for (int x = 0; x < block.value_dim; x += lanes) {
      store(sums.row(i) + x, load(sums.row(i) + x) * factor);
      store(scratch.output + i * sums.stride + x, 0.f);
    }
  }
}

/// scratch.output += P·V for `count` keys, whose weights lie from `at` on, and of which query i sees those in seen[i],
/// counted as weights are; `all`: every query sees every one. Touches no value for a row that does not see it: it may
/// be NaN.
template <class Element>
DISTATTN_INLINE void add_values(const FewBlock& block, const HeadRows<const Element>& v, int count, int at, bool all,
                                const Range* seen, const FewScratch& scratch, Ahead& ahead) {
  const int stride = rounded_up(block.value_dim, lanes), rows = block.rows();
  const float* weights = scratch.scores + at;
  float* output = scratch.output;
  if (all) {
    return by_few_rows(rows, ahead, [&]<int Rows>(int row, auto& next) {
      add_weighted<Rows>(v, count, block.value_dim, weights + row * key_block, output + row * stride, stride, next);
    });
  }
  for (int row = 0; row < rows; ++row) {
    const Range& range = seen[row % block.queries];
    const int from = bigger(range.from, at), to = smaller(range.to, at + count);
    if (from >= to) continue;
    add_weighted<1>(HeadRows<const Element>{v.data + (from - at) * v.stride, v.stride}, to - from, block.value_dim,
                    scratch.scores + row * key_block + from, output + row * stride, stride, ahead);
  }
}

/// sums += scratch.output.
template <class Element>
DISTATTN_INLINE void add_output(const FewBlock& block, const FewMemory& memory) {
  const FewSums& sums = memory.sums;
  const float* output = memory.scratch.output;
  const int split = split_elements<Element>(block.value_dim);
  for (int row = 0; row < block.rows(); ++row, output += sums.stride) {
    float* const sum = sums.row(row);
    int x = 0;
    for (; x < split; x += 2 * lanes) {
      const Split some = in_order({load(output + x), load(output + x + lanes)});
      store(sum + x, load(sum + x) + some.even);
      store(sum + x + lanes, load(sum + x + lanes) + some.odd);
    }
    for (; x < sums.stride; x += lanes) store(sum + x, load(sum + x) + load(output + x));
  }
}

/// Adds what all heads see of the keys [first, last) to their sums.
template <class Element>
void few_pass_of(std::span<const FewHead> heads, int first, int last, const StopFlag& stop) {
  const AttendPass& pass = heads.front().pass;
  const FewBlock& block = heads.front().block;
  const int queries = block.queries;
  std::array<FewMemory, most_few_heads> memory;
  for (std::size_t i = 0; i < heads.size(); ++i) memory[i] = FewMemory(heads[i]);
  Range seen[few_queries];
  for (int begin = first, end; begin < last; begin = end) {
    if (stop.load(std::memory_order_relaxed)) return;
    end = smaller(last, (begin / key_block + 1) * key_block);
    for (int i = 0; i < queries; ++i) {
      seen[i] = {bigger(pass.begin[i], begin) - begin, smaller(pass.end[i], end) - begin};
    }
    const auto all_see = [&](int from, int to) {
      return std::all_of(seen, seen + queries,
                         [&](const Range& range) { return range.from <= from && range.to >= to; });
    };
    const bool whole = all_see(0, end - begin);
    for_each_tile<Element>(heads, &AttendPass::k, block.head_dim, few_key_tile, begin, end, last,
                           [&](int i, const auto& k, int key, int tile_end, Ahead& ahead) {
                             multiply_keys(heads[index(i)].block, k, tile_end - key, key - begin,
                                           memory[index(i)].scratch, ahead);
                           });
    for (std::size_t i = 0; i < heads.size(); ++i) weigh_keys(heads[i], memory[i], begin, end - begin, seen);
    for_each_tile<Element>(heads, &AttendPass::v, block.value_dim, few_value_tile, begin, end, last,
                           [&](int i, const auto& v, int key, int tile_end, Ahead& ahead) {
                             add_values(heads[index(i)].block, v, tile_end - key, key - begin,
                                        whole || all_see(key - begin, tile_end - begin), seen, memory[index(i)].scratch,
                                        ahead);
                           });
    for (std::size_t i = 0; i < heads.size(); ++i) add_output<Element>(heads[i].block, memory[i]);
  }
}

inline void few_pass(std::span<const FewHead> heads, int first, int last, const StopFlag& stop) {
  with_element_rows({}, heads.front().block.dtype, [&]<class Element>(const HeadRows<const Element>&) {
    few_pass_of<Element>(heads, first, last, stop);
  });
}

/// Writes (o, lse) of a row from its sums over `pieces` of the keys, which lie one after the other. A row that saw no
/// key keeps its carry, or gets (0, −∞).
inline void few_end_row(const FewBlock& block, int row, std::byte* sums_memory, int pieces) {
  const std::size_t bytes = FewSums(nullptr, block.rows(), block.value_dim).bytes;
  const auto sums_of = [&](int piece) {
    return FewSums(sums_memory + static_cast<std::size_t>(piece) * bytes, block.rows(), block.value_dim);
  };
  float& lse = block.lse[row];
  const bool carried = block.carry && lse != minus_infinity;
  float top = carried ? lse : minus_infinity;
  bool empty = true;
  for (int piece = 0; piece < pieces; ++piece) {
    const FewSums sums = sums_of(piece);
    top = sums.top[row] > top ? sums.top[row] : top;
    if (block.max_logit != nullptr) raise_to(block.max_logit[row / block.queries], sums.top + row, sums.sum + row, 1);
    empty = empty && sums.sum[row] == 0.f;
  }
  if (empty && carried) return;
  const float reference = top > lowest ? top : lowest;
  const float keep = carried ? exp(lse - reference) * sum_of(widened_low(block.lse_low, row)) : 0.f;
  float total = keep, take[most_pieces];
  for (int piece = 0; piece < pieces; ++piece) {
    const FewSums sums = sums_of(piece);
    take[piece] = exp(sums.top[row] - reference);
    total += sums.sum[row] * take[piece];
  }
  float* const o = block.o.data + row / block.queries * block.o_head + row % block.queries * block.o.stride;
  for (int x = 0; x < block.value_dim; x += lanes) {
    Vector output = carried ? load_first(o + x, block.value_dim - x) * keep : Vector(0.f);
    for (int piece = 0; piece < pieces; ++piece) output += load(sums_of(piece).row(row) + x) * take[piece];
    store_first(o + x, empty ? Vector(0.f) : output / total, block.value_dim - x);
  }
  const Lse<float> whole = lse_of(reference, total);
  lse = empty ? minus_infinity : whole.high;
  store_low(block.lse_low, row, {lse, whole.low});
}

inline void few_end(const FewBlock& block, std::byte* sums, int pieces) {
  for (int i = 0; i < block.rows(); ++i) few_end_row(block, i, sums, pieces);
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
