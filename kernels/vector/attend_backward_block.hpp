#pragma once
/// Gradients of one block of queries against a chunk of keys (FlashAttention-2, Algorithm 2).
///
/// S = map(Q·(factor·K)ᵀ) (kernels/scores.hpp) and dP = dO·Vᵀ have keys along the lanes; P = e^(S − lse) and dS =
/// factor·P∘(dP − delta), the gradient of products, are made from them in registers. The factor e^−lse_low of P is in
/// dO and delta, or in P where dO is not of floats (operands.hpp). Then dV += Pᵀ·dO, dK += dSᵀ·Q and dQ += dS·K
/// have the head dimension along the lanes. So the queries, which every chunk of keys meets anew, serve all products as
/// they lie; only keys and values, packed once, are transposed. Keys are K without what all of them share, which enters
/// with S and dQ as a whole (shared_key.hpp).

#include "kernels/scores.hpp"
#include "kernels/vector/backward_keys.hpp"
#include "kernels/vector/backward_scratch.hpp"
#include "kernels/vector/bias.hpp"
#include "kernels/vector/drop.hpp"
#include "kernels/vector/lane_products.hpp"
#include "kernels/vector/lse.hpp"
#include "kernels/vector/packing.hpp"
#include "kernels/vector/shared_key.hpp"
#include "kernels/vector/vector_kernels.hpp"
#include "kernels/vector/visible.hpp"
#if defined(__AMX_BF16__)
#include "kernels/vector/backward_tiles.hpp"
#else
#include "kernels/vector/backward_panels.hpp"
#endif

namespace distattn::kernels::vector::DISTATTN_ISA {

/// Packs keys without what is shared.
inline void pack_keys(const BackwardChunk& chunk, const BackwardScratch& scratch) {
  scratch.known->finite_keys = true;
  const auto factor = factor_of<float>(chunk.scores);
  for (int j = 0; j < chunk.keys; j += panel_width) {
    const int count = smaller(panel_width, chunk.keys - j);
    const int next = j + count, next_count = smaller(panel_width, chunk.keys - next);
    Prefetch(rows_from(chunk.k, chunk.dtype, next), chunk.dtype, next_count, chunk.head_dim).all();
    const HeadRows<const float> k =
        operand_rows(rows_from(chunk.k, chunk.dtype, j), chunk.dtype, count, chunk.head_dim, scratch.widened);
    float* const panel = scratch.keys + j * depth_words(chunk.head_dim);
    pack_keys_transposed<panel_width>(k, count, chunk.head_dim, factor, scratch.shared, panel);
    clear_depth(panel, chunk.head_dim);
    const bool finite = pack_terms(rows_from(chunk.k, chunk.dtype, j), chunk.dtype, count, whole_terms(count),
                                   chunk.head_dim, scratch.key_rows.from(words_of(j)), scratch.widened,
                                   [&](int, int x, Vector some) { return some - load(scratch.shared + x); });
    scratch.known->finite_keys = scratch.known->finite_keys && finite;
  }
}

/// Takes nothing out of keys from here on.
inline void share_nothing(const BackwardChunk& chunk, const BackwardScratch& scratch) {
  scratch.known->shared = false;
  std::fill_n(scratch.shared, chunk.head_dim, 0.f);
  pack_keys(chunk, scratch);
}

/// Packs a chunk of keys for any number of blocks of queries.
inline void backward_chunk_begin(const BackwardChunk& chunk, std::byte* memory) {
  const int head_dim = chunk.head_dim, value_dim = chunk.value_dim;
  const BackwardScratch scratch(memory, head_dim, value_dim);
  std::fill_n(scratch.shared, rounded_up(head_dim, sum_width), 0.f);
  scratch.known->shared =
      find_shared_key(chunk.segment, chunk.dtype, chunk.segment_keys, head_dim, scratch.widened, scratch.shared);
  pack_keys(chunk, scratch);
  bool finite = scratch.known->finite_keys;
  for (int j = 0; j < chunk.keys; j += panel_width) {
    const int count = smaller(panel_width, chunk.keys - j);
    const int next = j + count, next_count = smaller(panel_width, chunk.keys - next);
    Prefetch(rows_from(chunk.v, chunk.dtype, next), chunk.dtype, next_count, value_dim).all();
    for (int i = 0; scratch.known->shared && finite && i < count; ++i) {
      const auto row = widened(rows_from(chunk.v, chunk.dtype, j + i), chunk.dtype, 1, value_dim, scratch.widened);
      finite = is_finite(row.data, value_dim);
    }
    const HeadRows<const float> v =
        operand_rows(rows_from(chunk.v, chunk.dtype, j), chunk.dtype, count, value_dim, scratch.widened);
    float* const panel = scratch.values + j * depth_words(value_dim);
    pack_transposed<panel_width>(v, count, words_of(value_dim), panel);
    clear_depth(panel, value_dim);
  }
  if (scratch.known->shared && !finite) share_nothing(chunk, scratch);
}

inline void backward_sum_begin(const BackwardChunk& chunk, std::byte* memory) {
  const BackwardScratch scratch(memory, chunk.head_dim, chunk.value_dim);
  clear_rows(scratch.d_keys, whole_terms(chunk.keys), chunk.head_dim);
  clear_rows(scratch.d_values, whole_terms(chunk.keys), chunk.value_dim);
}

/// Whether dQ may leave out what queries were told that keys share: where it is no large part of these keys, it would
/// be most of what is summed.
inline bool may_leave_out(const float* told, const float* shared, int dim) {
  float apart = 0.f, all = 0.f;
  for (int x = 0; x < dim; ++x) {
    apart += (shared[x] - told[x]) * (shared[x] - told[x]);
    all += told[x] * told[x];
  }
  return 0.f < all && 16.f * apart <= all;
}

/// What shared keys add to a block's products, and what its dQ is to be told of them.
inline void shift_block(const BackwardChunk& chunk, const BackwardBlock& block, const BackwardScratch& scratch) {
  Known& known = *scratch.known;
  known.left_out = block.shared != nullptr && may_leave_out(block.shared, scratch.shared, chunk.head_dim);
  known.summed = known.shared || known.left_out;
  std::fill_n(scratch.apart, rounded_up(chunk.head_dim, lanes), 0.f);
  for (int x = 0; x < chunk.head_dim; ++x) {
    scratch.apart[x] = scratch.shared[x] - (known.left_out ? block.shared[x] : 0.f);
  }
  if (!scratch.known->shared) return;
  const HeadRows<const float> q = widened(block.q, chunk.dtype, block.rows, chunk.head_dim, scratch.widened);
  const auto factor = factor_of<float>(chunk.scores);
  for (int i = 0; i < block.rows; ++i) {
    scratch.shift[i] = shared_product(q.data + i * q.stride, chunk.head_dim, factor, scratch.shared);
  }
}

inline void backward_block_begin(const BackwardChunk& chunk, const BackwardBlock& block, std::byte* memory) {
  const BackwardScratch scratch(memory, chunk.head_dim, chunk.value_dim);
  const int rows = rounded_up(block.rows, row_unit);
  const auto factor = factor_of<float>(chunk.scores);
  for (int i = 0; i < rows; ++i) {
    scratch.units[i] = i < block.rows ? sum_of(-widened_low(block.lse_low, i)) : 0.f;
    scratch.lse[i] = i < block.rows ? block.lse[i] : 0.f;
    scratch.positions[i] = static_cast<std::int32_t>(block.positions.at(smaller(i, block.rows - 1)));
    scratch.delta[i] = i < block.rows ? block.delta[i] * factor * (pairs ? 1.f : scratch.units[i]) : 0.f;
    scratch.shift[i] = scratch.sums[i] = scratch.squares[i] = 0.f;
  }
  pack_block(chunk, block, rows, scratch);
  const bool finite =
      scratch.known->finite_queries && scratch.known->finite_d_outputs && is_finite(scratch.delta, rows);
  if (scratch.known->shared && !finite) share_nothing(chunk, scratch);
  shift_block(chunk, block, scratch);
  clear_rows(scratch.d_queries, rows, chunk.head_dim);
}

/// The weight of a score. `unit` is e^−lse_low, which goes with dO and delta where those are floats.
DISTATTN_INLINE Vector weight_of(Vector score, float lse, float unit) {
  const Vector weight = power_of_e(lesser(Vector(0.f), score - lse));
  return pairs ? weight * unit : weight;
}

/// The score of a product. A map that needs derivatives for gradients finds them where these go: among dS, until that
/// is made.
template <class Map>
DISTATTN_INLINE Vector score_keeping_derivative(const Map& map, Vector product, float* at) {
  const Curve<Vector> curve = map.curve(product);
  if constexpr (!Map::is_linear) store(at, curve.derivative);
  return curve.score;
}
template <class Map>
DISTATTN_INLINE Vector gradient_by_kept(const Map& map, Vector d_score, const float* at) {
  if constexpr (Map::is_linear) {
    return d_score;
  } else {
    return map.gradient(d_score, load(at));
  }
}

/// The weights of a block whose operation has few queries, rounded as the forward pass of such rounds scores.
template <class Map, class Bias>
inline void weigh_few(const Map& map, const Bias& bias, const BackwardChunk& chunk, const BackwardBlock& block,
                      const BlockKeys& keys, int key, int end, const BackwardScratch& scratch) {
  const int padded = rounded_up(end - key, panel_width);
  for (int i = 0; i < keys.rows * backward_keys; i += backward_keys) {
    for (int j = 0; j < padded; j += lanes) store(scratch.weights + i + j, 0.f);
  }
  for (int j = key; j < end; j += few_keys) {
    const int count = smaller(few_keys, end - j);
    const HeadRows<const float> k =
        widened(rows_from(chunk.k, chunk.dtype, j), chunk.dtype, count, chunk.head_dim, scratch.widened);
    for (int row = 0; row < block.rows; ++row) {
      multiply_lanes<1>(
          chunk.head_dim,
          [&](int which, int x, auto load_key) { return load_key(k.data + smaller(which, count - 1) * k.stride + x); },
          [&](int, int x) { return load(scratch.few_rows.at(row, x)) * map.factor(); },
          [&](int, Quad products) { store_quad(scratch.weights + row * backward_keys + j - key, products); });
    }
  }
  for (int row = 0; row < block.rows; ++row) {
    for (int j = 0; j < padded; j += lanes) {
      float* const at = scratch.weights + row * backward_keys + j;
      const Vector product = load(at);
      const Vector score = score_keeping_derivative(map, product, scratch.d_scores + row * backward_keys + j);
      const Vector weight = weight_of(bias.at_keys(score, row, key + j), scratch.lse[row], scratch.units[row]);
      store(at, replace(keys.hidden(row, key + j), weight, 0.f));
    }
  }
}

/// Adds up dS of `count` keys, a multiple of vectors, and the squares of what it rounds by.
inline void sum_d_scores(int rows, int count, const BackwardScratch& scratch) {
  for (int i = 0; i < rows; ++i) {
    Vector sum = 0.f, squares = 0.f, weights = 0.f;
    for (int j = i * backward_keys; j < i * backward_keys + count; j += lanes) {
      const Vector d_score = load(scratch.d_scores + j), weight = load(scratch.weights + j);
      sum += d_score;
      squares += d_score * d_score;
      weights += weight * weight;
    }
    scratch.sums[i] += stdx::reduce(sum);
    scratch.squares[i] += stdx::reduce(squares + weights * (scratch.delta[i] * scratch.delta[i]));
  }
}

/// dS of keys [key, end) from P, of which dropout then leaves what multiplies dO in dV.
template <class Map>
inline void differentiate_weights(const Map& map, const BackwardChunk& chunk, const BackwardBlock& block,
                                  const BlockKeys& keys, int key, int end, const BackwardScratch& scratch,
                                  NextRows& next) {
  const auto gradient = [&](int row, int at, Vector weight, Vector d_weight) DISTATTN_INLINED {
    const Vector d_score = weight * (d_weight * map.factor() - scratch.delta[row]);
    return gradient_by_kept(map, d_score, scratch.d_scores + at);
  };
  const auto score_all = [&](auto make) {
    score(keys, key, end, chunk.value_dim, scratch.d_outputs, scratch.values, scratch.d_scores, next, make);
  };
  const auto undropped = [&](int row, int, int at, Vector d_weight)
                             DISTATTN_INLINED { return gradient(row, at, load(scratch.weights + at), d_weight); };
  const bool drops = block.dropout.limit != 0;
  if constexpr (Map::is_linear) {  // next to another map a question for each vector is nothing
    if (!drops) return score_all(undropped);
  }
  if (drops) {
    mark_dropped(Drop(block.dropout, {nullptr, scratch.positions, chunk.positions}), keys.rows, key,
                 rounded_up(end - key, panel_width), scratch.weights, backward_keys);
  }
  score_all([&](int row, int j, int at, Vector d_weight) DISTATTN_INLINED {
    if (!Map::is_linear && !drops) return undropped(row, j, at, d_weight);
    float* const weights = scratch.weights + at;
    const Vector weight = load(weights);
    const Vector kept = replace(negative_lanes(weight), Vector(static_cast<float>(block.dropout.kept)), 0.f);
    store(weights, magnitude(weight) * kept);
    return gradient(row, at, magnitude(weight), d_weight * kept);
  });
}

template <class Bias, class Map>
inline void differentiate(const Map& map, const BackwardChunk& chunk, const BackwardBlock& block,
                          const std::int32_t* begin, const std::int32_t* end_of, std::byte* memory,
                          const StopFlag& stop) {
  const BackwardScratch scratch(memory, chunk.head_dim, chunk.value_dim);
  const BlockKeys all(begin, end_of, block.rows, {0, none});
  const bool few = see_few(all.block, begin, end_of, block.rows);
  const Bias bias({block.alibi_slope, scratch.positions, chunk.positions});
  NextRows next{{rows_of(block.dq), DType::fp32, block.rows, chunk.head_dim},
                {block.next_q, chunk.dtype, block.next_rows, chunk.head_dim},
                {block.next_d_o, chunk.dtype, block.next_rows, chunk.value_dim}};
  for (int key = all.block.first / panel_width * panel_width; key < all.block.last; key += backward_keys) {
    if (stop.load(std::memory_order_relaxed)) return;
    const int end = smaller(all.block.last, key + backward_keys);
    const BlockKeys keys = few ? BlockKeys(begin, end_of, block.rows, {key, end}) : all;
    if (keys.block.first >= keys.block.last) continue;
    next.due = key + backward_keys >= all.block.last;
    if (block.few) {
      weigh_few(map, bias, chunk, block, keys, key, end, scratch);
    } else {
      score(keys, key, end, chunk.head_dim, scratch.queries, scratch.keys, scratch.weights, next,
            [&](int row, int j, int at, Vector sum) DISTATTN_INLINED {
              const Vector product = scored_product(sum, map.factor(), Vector(scratch.shift[row]));
              const Vector score = score_keeping_derivative(map, product, scratch.d_scores + at);
              return weight_of(bias.at_keys(score, row, j), scratch.lse[row], scratch.units[row]);
            });
    }
    differentiate_weights(map, chunk, block, keys, key, end, scratch, next);
    if (scratch.known->summed) sum_d_scores(keys.rows, rounded_up(end - key, panel_width), scratch);
    join_coefficients(keys.rows, rounded_up(end - key, panel_width), scratch);
    add_gradients(chunk, keys, key, end, scratch);
  }
}

inline void backward_pass(const BackwardChunk& chunk, const BackwardBlock& block, const std::int32_t* begin,
                          const std::int32_t* end, std::byte* memory, const StopFlag& stop) {
  [[maybe_unused]] const ProductRegisters registers;
  with_scores<float>(chunk.scores, [&](const auto& map) {
    with_bias(map, block.alibi_slope,
              [&]<class Bias>() { differentiate<Bias>(map, chunk, block, begin, end, memory, stop); });
  });
}

/// The result (+)= the block's dQ over the chunk, but for what it leaves out.
inline void backward_block_end(const BackwardChunk& chunk, const BackwardBlock& block, std::byte* memory) {
  const BackwardScratch scratch(memory, chunk.head_dim, chunk.value_dim);
  const Known& known = *scratch.known;
  if (!known.summed) return add_rows(scratch.d_queries, block.rows, chunk.head_dim, block.carry, block.dq);
  for (int i = 0; i < block.rows; ++i) {  // a dQ that is no number is so whatever it leaves out
    if (!is_finite(scratch.sums + i, 1)) scratch.sums[i] = 0.f;
  }
  put_rows(scratch.d_queries, block.rows, chunk.head_dim, block.dq, [&](int i, int x, Vector sum, auto before) {
    const Vector apart = load(scratch.apart + x);
    const Vector some = block.carry ? before() + sum : sum;
    return replace(same_lanes(apart, 0.f), apart * scratch.sums[i] + some, some);
  });
  for (int i = 0; known.left_out && i < block.rows; ++i) {
    block.sums[i] += scratch.sums[i];
    if (block.squares != nullptr) block.squares[i] += scratch.squares[i];
  }
}

inline void find_shared(const SegmentKeys& segment, float* into) {
  alignas(64) float some[lanes], buffer[lanes];
  for (int x = 0; x < segment.head_dim; x += lanes) {
    const int count = smaller(lanes, segment.head_dim - x);
    const auto* const first = static_cast<const std::byte*>(segment.k.data) + x * size_of(segment.dtype);
    find_shared_key(HeadRows<const void>{first, segment.k.stride}, segment.dtype, segment.keys, count, buffer, some);
    std::copy_n(some, count, into + x);
  }
}

inline void backward_sum_end(const BackwardChunk& chunk, std::byte* memory) {
  const BackwardScratch scratch(memory, chunk.head_dim, chunk.value_dim);
  add_rows(scratch.d_keys, chunk.keys, chunk.head_dim, chunk.carry, chunk.dk);
  const bool lie_in_keys = chunk.dv.data == chunk.dk.data;
  add_rows(scratch.d_values, chunk.keys, chunk.value_dim, chunk.carry || lie_in_keys, chunk.dv);
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
