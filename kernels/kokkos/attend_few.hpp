#pragma once
/// Forward attention of few queries: one a sequence while tokens are decoded one by one, some while a draft is checked.
/// Bringing keys and values from memory is then what takes time. All query heads of a key head take them together, so
/// that they come once; keys lie along the lanes of vectors, because there are too few queries to; and values are
/// multiplied where they lie.
///
/// For each row and block of keys: s = (scale·log2e·K)·q, p = 2^(s − top), o = 2^(old − top)·o + p·V. Scores are
/// rounded as those of attend_block.hpp are.

#include "kernels/kokkos/packing.hpp"
#include "kernels/kokkos/product.hpp"
#include "kernels/kokkos/scratch.hpp"
#include "kernels/kokkos/vector_kernels.hpp"
#include "kernels/kokkos/visible.hpp"

namespace distattn::kernels::kokkos::DISTATTN_ISA {

/// Rows and keys of a tile of scores.
inline constexpr int few_rows = vector_registers == 32 ? 6 : 3;
inline constexpr int few_vectors = 4;
inline constexpr int few_keys = few_vectors * lanes;
static_assert(key_block % few_keys == 0);

/// Rows and keys whose weights stay in registers while values go by.
inline constexpr int weighted_rows = vector_registers == 32 ? 4 : 2;
inline constexpr int weighted_keys = 4;
static_assert(key_block % weighted_keys == 0);

/// Most rows of a block: their weights and sums stay in the caches beside the keys.
inline constexpr int most_few_rows = 32;
/// More queries than that are better served as attend_block.hpp does.
inline constexpr int few_queries = lanes;
static_assert(few_queries <= most_few_rows);

/// Sums of a block over some keys: what few_end merges. Laid out in memory of the caller.
struct FewSums {
  float* output;  // [row][stride]
  int stride;
  float* top;  // [row] largest score, base 2
  float* sum;  // [row] Σ 2^(score − top)
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
  float* queries;  // [tile of rows][head_dim][few_rows]
  float* keys;     // [head_dim][few_keys], times scale·log2e
  float* scores;   // [row][key_block]
  float* output;   // [row][value_dim, rounded up] of one block of keys
  float* widened;  // where 16-bit rows are widened
  std::size_t bytes;

  FewScratch(std::byte* memory, int head_dim, int value_dim) {
    Carver carve(memory);
    queries = carve.floats(rounded_up(most_few_rows, few_rows) * head_dim);
    keys = carve.floats(few_keys * head_dim);
    scores = carve.floats(rounded_up(most_few_rows, few_rows) * key_block);
    output = carve.floats(most_few_rows * rounded_up(value_dim, lanes));
    widened = carve.floats(bigger(few_keys * head_dim, weighted_keys * value_dim));
    bytes = carve.bytes();
  }
};

/// Packs the block's queries and begins their sums.
inline void few_begin(const FewBlock& block, std::byte* memory, std::byte* sums_memory) {
  const FewScratch scratch(memory, block.head_dim, block.value_dim);
  const FewSums sums(sums_memory, block.rows(), block.value_dim);
  for (int i = 0; i < block.rows(); ++i) {
    float* const tile = scratch.queries + i / few_rows * few_rows * block.head_dim + i % few_rows;
    const HeadRows<const void> head = rows_from({block.q.data, block.q_head}, block.dtype, i / block.queries);
    const HeadRows<const float> q = widened(rows_from({head.data, block.q.stride}, block.dtype, i % block.queries),
                                            block.dtype, 1, block.head_dim, scratch.widened);
    for (int x = 0; x < block.head_dim; ++x) tile[x * few_rows] = q.data[x];
    for (int x = 0; x < block.value_dim; x += lanes) store(sums.row(i) + x, 0.f);
    sums.top[i] = minus_infinity;
    sums.sum[i] = 0.f;
  }
}

/// into[x·few_keys + i] = factor · key i, element x. Asks memory for the next ones meanwhile: hardware
/// foresees only rows that lie together.
inline void pack_few_keys(const HeadRows<const float>& k, int dim, float factor, Prefetch& next, float* into) {
  constexpr int line = 16;
  for (int first = 0; first < dim; first += line) {
    for (int i = 0; i < few_keys; i += lanes) {
      next.some();
      for (int x = first; x < smaller(dim, first + line); x += 4) {
        const auto row = [&](int r) { return load_fours<Lanes>(k.data + (i + r) * k.stride + x, 4 * k.stride); };
        // Row r of the four has elements of keys i + r, i + r + 4, … so that a column has those of i, i + 1, …
        const Fours<Lanes> columns = transposed(Fours<Lanes>{{row(0), row(1), row(2), row(3)}});
        float* const to = into + x * few_keys + i;
        for (int c = 0; c < 4; ++c) store(to + c * few_keys, std::bit_cast<Vector>(columns.row[c]) * factor);
      }
    }
  }
}

/// What a row sees of the keys [first, last).
DISTATTN_INLINE Range seen_by(const FewBlock& block, const AttendPass& pass, int row, int first, int last) {
  const int query = row % block.queries;
  return {bigger(pass.begin[query], first), smaller(pass.end[query], last)};
}

/// Scores of the packed keys [key, key + few_keys) against `Rows` rows from `row` on; what a row does not see is −∞.
template <int Rows>
DISTATTN_INLINE void score_few(int head_dim, int row, int key, const Range* seen, const FewScratch& scratch,
                               float* scores) {
  const Bits lane([](auto i) { return static_cast<std::int32_t>(i); });
  product<Rows, few_vectors, 1, few_rows, few_keys>(
      head_dim, scratch.queries + row * head_dim, scratch.keys, [](int, int) { return Vector(0.f); },
      [&](int i, int v, Vector score) {
        const Range& range = seen[row + i];
        const Bits hidden = outside(Bits(range.from), Bits(range.to), lane + (key + v * lanes));
        store(scores + (row + i) * key_block + v * lanes, replace(hidden, score, minus_infinity));
      });
}

/// Turns `count` scores of a row, rounded up to whole vectors, into 2^(score − top) and raises top and sum to include
/// them. Returns what the output so far is to be multiplied by.
inline float weigh(float* scores, int count, float& top, float& sum) {
  Vector largest(minus_infinity);
  for (int j = 0; j < count; j += lanes) largest = larger(load(scores + j), largest);
  const float before = top;
  for (int lane = 0; lane < lanes; ++lane) top = largest[lane] > top ? largest[lane] : top;
  const float reference = top > lowest ? top : lowest;  // of a row that has seen nothing, as in softmax()
  Vector sums(0.f);
  for (int j = 0; j < count; j += lanes) {
    const Vector weight = exp2(load(scores + j) - reference);
    sums += weight;
    store(scores + j, weight);
  }
  const float factor = exp2(before - reference);
  sum = sum * factor + stdx::reduce(sums);
  return factor;
}

/// Adds `Keys` values to the outputs of `Rows` rows.
template <int Rows, int Keys>
DISTATTN_INLINE void add_weighted(const HeadRows<const float>& v, int dim, const float* weights, float* output,
                                  int stride) {
  Vector weight[Rows][Keys];
  for (int i = 0; i < Rows; ++i) {
    for (int j = 0; j < Keys; ++j) weight[i][j] = weights[i * key_block + j];
  }
  const auto add = [&](int x, auto value) {
    Vector sums[Rows];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) sums[i] = load(output + i * stride + x);
#pragma GCC unroll 8
    for (int j = 0; j < Keys; ++j) {
      const Vector some = value(v.data + j * v.stride + x);
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) sums[i] = weight[i][j] * some + sums[i];
    }
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) store(output + i * stride + x, sums[i]);
  };
  int x = 0;
  for (; x + lanes <= dim; x += lanes) add(x, [](const float* at) { return Vector(at, stdx::element_aligned); });
  if (x < dim) add(x, [&](const float* at) { return load_first(at, dim - x); });
}

/// scratch.output = P·V for the keys [first, last). Touches no value for a row that does not see it: it may be NaN.
inline void add_values(const FewBlock& block, const AttendPass& pass, int first, int last, const Range* seen,
                       const FewScratch& scratch) {
  const int stride = rounded_up(block.value_dim, lanes), rows = block.rows();
  for (int i = 0; i < rows * stride; i += lanes) store(scratch.output + i, 0.f);
  for (int key = first; key < last; key += weighted_keys) {
    const int count = smaller(weighted_keys, last - key);
    const HeadRows<const float> v =
        widened(rows_from(pass.v, block.dtype, key), block.dtype, count, block.value_dim, scratch.widened);
    for (int row = 0; row < rows; row += weighted_rows) {
      const int some_rows = smaller(weighted_rows, rows - row);
      const float* weights = scratch.scores + row * key_block + key - first;
      float* output = scratch.output + row * stride;
      bool all = count == weighted_keys;
      for (int i = row; i < row + some_rows; ++i) all = all && seen[i].from <= key && key + count <= seen[i].to;
      if (all) {
        by_count<weighted_rows>(some_rows, [&]<int Rows>() {
          add_weighted<Rows, weighted_keys>(v, block.value_dim, weights, output, stride);
        });
        continue;
      }
      for (int i = 0; i < some_rows; ++i) {
        for (int j = 0; j < count; ++j) {
          if (key + j < seen[row + i].from || key + j >= seen[row + i].to) continue;
          add_weighted<1, 1>({v.data + j * v.stride, v.stride}, block.value_dim, weights + i * key_block + j,
                             output + i * stride, stride);
        }
      }
    }
  }
}

/// Adds the keys [first, last) of one block of keys to the sums; more follow until `last_key`.
inline void attend_few_keys(const FewBlock& block, const AttendPass& pass, int first, int last, int last_key,
                            const FewScratch& scratch, const FewSums& sums) {
  Range seen[most_few_rows + few_rows];
  for (int i = 0; i < block.rows(); ++i) seen[i] = seen_by(block, pass, i, first, last);
  for (int key = first; key < last; key += few_keys) {
    const int count = smaller(few_keys, last - key);
    const HeadRows<const float> k =
        widened(rows_from(pass.k, block.dtype, key), block.dtype, count, block.head_dim, scratch.widened);
    const int end = key + count, next_count = smaller(few_keys, last_key - end);
    Prefetch next(rows_from(pass.k, block.dtype, end), block.dtype, next_count, block.head_dim);
    if (count == few_keys) {
      pack_few_keys(k, block.head_dim, block.scale * log2_e, next, scratch.keys);
    } else {
      pack_transposed<few_keys>(k, count, block.head_dim, block.scale * log2_e, scratch.keys);
    }
    for (int row = 0; row < block.rows(); row += few_rows) {
      by_count<few_rows>(smaller(few_rows, block.rows() - row), [&]<int Rows>() {
        score_few<Rows>(block.head_dim, row, key, seen, scratch, scratch.scores + key - first);
      });
    }
  }
  float rescale[most_few_rows];
  for (int i = 0; i < block.rows(); ++i) {
    rescale[i] = weigh(scratch.scores + i * key_block, last - first, sums.top[i], sums.sum[i]);
  }
  add_values(block, pass, first, last, seen, scratch);
  for (int i = 0; i < block.rows(); ++i) {
    if (seen[i].empty()) continue;
    const float* added = scratch.output + i * sums.stride;
    for (int x = 0; x < block.value_dim; x += lanes) {
      store(sums.row(i) + x, load(sums.row(i) + x) * rescale[i] + load(added + x));
    }
  }
}

/// Adds what the block sees of the keys [first, last) to its sums.
inline void few_pass(const FewBlock& block, const AttendPass& pass, int first, int last, std::byte* memory,
                     std::byte* sums_memory, const StopFlag& stop) {
  const FewScratch scratch(memory, block.head_dim, block.value_dim);
  const FewSums sums(sums_memory, block.rows(), block.value_dim);
  for (int key = first; key < last;) {
    if (stop.load(std::memory_order_relaxed)) return;
    const int end = smaller(last, (key / key_block + 1) * key_block);
    attend_few_keys(block, pass, key, end, last, scratch, sums);
    key = end;
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
  float top = carried ? lse * log2_e : minus_infinity;
  bool empty = true;
  for (int piece = 0; piece < pieces; ++piece) {
    const FewSums sums = sums_of(piece);
    top = sums.top[row] > top ? sums.top[row] : top;
    empty = empty && sums.sum[row] == 0.f;
  }
  if (empty && carried) return;
  const float reference = top > lowest ? top : lowest;
  const float keep = carried ? exp2(lse * log2_e - reference) : 0.f;
  float total = keep, take[most_pieces];
  for (int piece = 0; piece < pieces; ++piece) {
    const FewSums sums = sums_of(piece);
    take[piece] = exp2(sums.top[row] - reference);
    total += sums.sum[row] * take[piece];
  }
  float* const o = block.o.data + row / block.queries * block.o_head + row % block.queries * block.o.stride;
  for (int x = 0; x < block.value_dim; x += lanes) {
    Vector output = carried ? load_first(o + x, block.value_dim - x) * keep : Vector(0.f);
    for (int piece = 0; piece < pieces; ++piece) output += load(sums_of(piece).row(row) + x) * take[piece];
    store_first(o + x, empty ? Vector(0.f) : output / total, block.value_dim - x);
  }
  lse = empty ? minus_infinity : reference * ln_2 + log(total);
}

inline void few_end(const FewBlock& block, std::byte* sums, int pieces) {
  for (int i = 0; i < block.rows(); ++i) few_end_row(block, i, sums, pieces);
}

}  // namespace distattn::kernels::kokkos::DISTATTN_ISA
