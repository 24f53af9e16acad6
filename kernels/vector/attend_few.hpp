#pragma once
/// Forward attention of few queries: one a sequence while tokens are decoded one by one, some while a draft is checked.
/// Bringing keys and values from memory is then what takes time. All query heads of a key head take them together, so
/// that they come once; both are multiplied where they lie, for several key heads by turns.
///
/// For each row and block of keys: s = map(K·(factor·q)), which is kernels/scores.hpp's, p = e^(s − top),
/// o = e^(old − top)·o + p·V.

#include <algorithm>
#include <span>

#include "kernels/raise.hpp"
#include "kernels/scores.hpp"
#include "kernels/vector/bias.hpp"
#include "kernels/vector/drop.hpp"
#include "kernels/vector/lane_products.hpp"
#include "kernels/vector/lse.hpp"
#include "kernels/vector/packing.hpp"
#include "kernels/vector/scratch.hpp"
#include "kernels/vector/vector_kernels.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// Keys that are multiplied for all heads before the next ones: where heads lie side by side, as in a cache of keys
/// that grows by tokens, memory is then read from one end to the other. The next ones are asked for meanwhile.
inline constexpr int few_tile = 16;
static_assert(few_tile % few_keys == 0);

/// Most rows of a block: their weights and sums stay in the caches beside the keys.
inline constexpr int most_few_rows = 32;
static_assert(few_queries <= most_few_rows);

/// Sums of a block over some keys: what few_end merges. Laid out in memory of the caller.
struct FewSums {
  float* output;  // [row][stride]
  int stride;
  float* top;  // [row] largest score
  float* sum;  // [row] Σ e^(score − top)
  std::size_t bytes;

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
  int query_stride;
  float* queries;  // [row][query_stride], times the scores' factor, zeros behind head_dim
  float* scores;   // [row][key_block]
  float* output;   // [row][value_dim, rounded up] of one block of keys
  std::size_t bytes;

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

/// Calls each(head, key, end) for tiles of the keys [first, last), which end at multiples of few_tile: pages do too.
template <class Each>
DISTATTN_INLINE void for_each_tile(std::span<const FewHead> heads, int first, int last, Each each) {
  for (int key = first, end; key < last; key = end) {
    end = smaller((key / few_tile + 1) * few_tile, last);
    for (const FewHead& head : heads) each(head, key, end);
  }
}

/// The rows of a head's next tile below `last`, which are asked for a few lines with each key of this one: more at once
/// would make products wait.
struct Ahead {
  Prefetch rows;
  int lines;  ///< of a key

  Ahead(const KeyRows& from, DType dtype, int key, int last, int dim)
      : rows(tile_behind(from, dtype, (key / few_tile + 1) * few_tile, last, dim)),
        lines((dim * static_cast<int>(size_of(dtype)) + 63) / 64) {}

 private:
  static Prefetch tile_behind(const KeyRows& from, DType dtype, int next, int last, int dim) {
    if (next >= last) return {from, dtype, 0, dim};
    return {keys_from(from, dtype, next), dtype, smaller(few_tile, last - next), dim};
  }
};

/// Products of `count` keys into scratch.scores from `at` on.
template <class Element>
DISTATTN_INLINE void multiply_tile(const FewBlock& block, const HeadRows<const Element>& k, int count, int at,
                                   const FewScratch& scratch, Ahead ahead) {
  for (int key = 0; key < count; key += few_keys, at += few_keys) {
    ahead.rows.some(few_keys * ahead.lines);
    const Element* rows[few_keys];
    for (int j = 0; j < few_keys; ++j) rows[j] = k.data + smaller(key + j, count - 1) * k.stride;
    for (int row = 0; row < block.rows(); row += few_rows) {
      by_count<few_rows>(smaller(few_rows, block.rows() - row), [&]<int Rows>() {
        const float* const queries = scratch.queries + row * scratch.query_stride;
        multiply_lanes<Rows>(
            block.head_dim, [&](int j, int x, auto load_key) { return load_key(rows[j] + x); },
            [&](int i, int x) { return load(queries + i * scratch.query_stride + x); },
            [&](int i, Quad products) { store_quad(scratch.scores + (row + i) * key_block + at, products); });
      });
    }
  }
}

/// The same of the keys [first, last), which are of one tile; more keys follow until `last_key`.
inline void multiply_keys(const FewHead& head, int first, int last, int last_key, int at) {
  const FewBlock& block = head.block;
  const FewScratch scratch = scratch_of(block, head.scratch);
  const Ahead ahead(head.pass.k, block.dtype, first, last_key, block.head_dim);
  with_element_rows(keys_from(head.pass.k, block.dtype, first), block.dtype,
                    [&](const auto& k) { multiply_tile(block, k, last - first, at, scratch, ahead); });
}

/// Turns `count` scores of a row, rounded up to whole vectors, into e^(score − top) and raises top and sum to include
/// them. Returns what the output so far is to be multiplied by.
inline float weigh(float* scores, int count, float& top, float& sum) {
  Vector largest(minus_infinity);
  for (int j = 0; j < count; j += lanes) largest = larger(load(scores + j), largest);
  const float before = top;
  for (int lane = 0; lane < lanes; ++lane) top = largest[lane] > top ? largest[lane] : top;
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
template <int Rows, int Vectors, class Element, class Load>
DISTATTN_INLINE void add_vectors(const HeadRows<const Element>& v, int count, int x, const float* weights,
                                 float* output, int stride, Ahead& ahead, Load load_values) {
  Vector sums[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int u = 0; u < Vectors; ++u) sums[i][u] = load(output + i * stride + x + u * lanes);
  }
  const Element* row = v.data + x;
  const int lines = Vectors == 1 ? 1 : (ahead.lines + 1) / 2;
  for (int j = 0; j < count; ++j, row += v.stride) {
    ahead.rows.some(lines);
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
template <int Rows, class Element>
DISTATTN_INLINE void add_weighted(const HeadRows<const Element>& v, int count, int dim, const float* weights,
                                  float* output, int stride, Ahead& ahead) {
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
inline void weigh_keys(const FewHead& head, int key, int count, const Range* seen) {
  const FewBlock& block = head.block;
  const FewScratch scratch = scratch_of(block, head.scratch);
  const FewSums sums(head.sums, block.rows(), block.value_dim);
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
/// counted as weights are. Touches no value for a row that does not see it: it may be NaN.
template <class Element>
DISTATTN_INLINE void add_tile(const FewBlock& block, const HeadRows<const Element>& v, int count, int at,
                              const Range* seen, const FewScratch& scratch, Ahead& ahead) {
  const int stride = rounded_up(block.value_dim, lanes), rows = block.rows();
  const auto seen_by = [&](int row) {
    const Range& range = seen[row % block.queries];
    return Range{bigger(range.from, at) - at, smaller(range.to, at + count) - at};
  };
  for (int row = 0; row < rows; row += few_rows) {
    const int some_rows = smaller(few_rows, rows - row);
    const float* weights = scratch.scores + row * key_block + at;
    float* output = scratch.output + row * stride;
    bool all = true;
    for (int i = row; i < row + some_rows; ++i) all = all && seen_by(i).from == 0 && seen_by(i).to == count;
    if (all) {
      by_count<few_rows>(some_rows, [&]<int Rows>() {
        add_weighted<Rows>(v, count, block.value_dim, weights, output, stride, ahead);
      });
      continue;
    }
    for (int i = 0; i < some_rows; ++i) {
      const Range range = seen_by(row + i);
      if (range.empty()) continue;
      add_weighted<1>(HeadRows<const Element>{v.data + range.from * v.stride, v.stride}, range.to - range.from,
                      block.value_dim, weights + i * key_block + range.from, output + i * stride, stride, ahead);
    }
  }
}

/// The same of the keys [first, last), which are of one tile; more keys follow until `last_key`.
inline void add_values(const FewHead& head, int first, int last, int last_key, int at, const Range* seen) {
  const FewBlock& block = head.block;
  const FewScratch scratch = scratch_of(block, head.scratch);
  Ahead ahead(head.pass.v, block.dtype, first, last_key, block.value_dim);
  with_element_rows(keys_from(head.pass.v, block.dtype, first), block.dtype,
                    [&](const auto& v) { add_tile(block, v, last - first, at, seen, scratch, ahead); });
}

/// sums += scratch.output.
inline void add_output(const FewHead& head) {
  const FewSums sums(head.sums, head.block.rows(), head.block.value_dim);
  const float* output = scratch_of(head.block, head.scratch).output;
  const int split = head.block.dtype == DType::bf16 ? split_elements<Bf16>(head.block.value_dim) : 0;
  for (int row = 0; row < head.block.rows(); ++row, output += sums.stride) {
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
inline void few_pass(std::span<const FewHead> heads, int first, int last, const StopFlag& stop) {
  const AttendPass& pass = heads.front().pass;
  const int queries = heads.front().block.queries;
  Range seen[few_queries];
  for (int begin = first, end; begin < last; begin = end) {
    if (stop.load(std::memory_order_relaxed)) return;
    end = smaller(last, (begin / key_block + 1) * key_block);
    for (int i = 0; i < queries; ++i) {
      seen[i] = {bigger(pass.begin[i], begin) - begin, smaller(pass.end[i], end) - begin};
    }
    for_each_tile(heads, begin, end, [&](const FewHead& head, int key, int tile_end) {
      multiply_keys(head, key, tile_end, last, key - begin);
    });
    for (const FewHead& head : heads) weigh_keys(head, begin, end - begin, seen);
    for_each_tile(heads, begin, end, [&](const FewHead& head, int key, int tile_end) {
      add_values(head, key, tile_end, last, key - begin, seen);
    });
    for (const FewHead& head : heads) add_output(head);
  }
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
