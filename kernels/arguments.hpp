#pragma once
/// What every kernel takes: plain structs of pointers, shapes and bands. No steps, events or ranks.
///
/// Arrays are [batch][head][token][dim]. Those given as Rows may lie in any arrangement that keeps a row's elements
/// together, aligned to their own size; CUDA's kernels take packed ones alone. All others, and statistics
/// ([batch][head][token]), are packed and 64-byte aligned. Inputs have elements of `dtype`; results and statistics are
/// fp32, or fp64 where dtype is fp64. Products are summed in that type.
///
/// A statistic is the sum of two numbers, lse and lse_low: an fp32 log-sum-exp of 500 is up to 3e-5 from what it stands
/// for, and lse_low is the rest, as the bits of an fp16 (statistics.hpp). A lse_low has the shape of its lse, 0 where
/// that is no finite number, and is null where statistics are fp64. Null otherwise: 0 where it would be read, dropped
/// where it would be written.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <type_traits>

#include "distattn/band.hpp"
#include "distattn/error.hpp"
#include "distattn/features.hpp"
#include "distattn/scores.hpp"
#include "distattn/types.hpp"

namespace distattn::kernels {

/// Heads of one group, and which of its key heads a query head reads: query head q0+h reads key head (q0+h)/per_kv.
struct Heads {
  int q_count = 1, kv_count = 1;
  int q0 = 0, kv0 = 0;
  int per_kv = 1;  ///< query heads a key head, in the whole problem

  DISTATTN_HOST_DEVICE constexpr int kv_of(int h) const { return (q0 + h) / per_kv - kv0; }
  friend bool operator==(const Heads&, const Heads&) = default;
};

/// Elements from one batch, head and token to the next.
struct RowStrides {
  std::int64_t batch = 0, head = 0, token = 0;
  friend bool operator==(const RowStrides&, const RowStrides&) = default;
};

/// Strides of an array without gaps.
constexpr RowStrides packed_strides(std::int64_t heads, std::int64_t tokens, std::int64_t dim) {
  return {heads * tokens * dim, tokens * dim, dim};
}

/// The rows of an array: row (batch, head, token) begins at `data` plus as many strides.
template <class Void>
struct BasicRows {
  Void* data = nullptr;
  RowStrides strides;

  DISTATTN_HOST_DEVICE constexpr std::int64_t offset(std::int64_t batch, std::int64_t head, std::int64_t token) const {
    return batch * strides.batch + head * strides.head + token * strides.token;
  }
  template <class Other>
  requires(std::is_const_v<Other>) operator BasicRows<Other>() const { return {data, strides}; }
};
using Rows = BasicRows<void>;
using ConstRows = BasicRows<const void>;

/// The rows of an array without gaps.
template <class Element>
auto packed_rows(Element* data, std::int64_t heads, std::int64_t tokens, std::int64_t dim) {
  return BasicRows<std::conditional_t<std::is_const_v<Element>, const void, void>>{data,
                                                                                   packed_strides(heads, tokens, dim)};
}
/// The array, for those who take no gaps.
template <class Void>
Void* packed_data(const BasicRows<Void>& rows, std::int64_t heads, std::int64_t tokens, std::int64_t dim) {
  DISTATTN_EXPECT(rows.strides == packed_strides(heads, tokens, dim));
  return rows.data;
}

/// What decides which weights a call drops (kernels/dropout.hpp).
struct Dropout {
  double probability = 0;
  std::uint64_t seed = 0;
  std::uint32_t offset = 0;
  int heads = 1;  ///< query heads of the whole problem
};

/// Shapes and scores that the tiles of one operation share.
struct TileShape {
  DType dtype = DType::fp32;
  std::int64_t batch = 1;
  Heads heads;
  int head_dim = 0, value_dim = 0;
  Scores scores{1};
  const double* alibi_slopes = nullptr;  ///< by query head of the group; null: no bias
  const Dropout* dropout = nullptr;      ///< null: no weight is dropped
  bool shared_kv = false;                ///< v and dv begin where k and dk do, and have their strides
  friend bool operator==(const TileShape&, const TileShape&) = default;
};

/// What its tiles need. Sink logits are none of it: they concern the owner of a row alone.
inline Features features_of(const TileShape& shape) {
  const Features features = features_of(shape.dtype, shape.scores).without({Feature::sink_logits});
  const Features with_bias = shape.alibi_slopes == nullptr ? features : features.with({Feature::alibi});
  return shape.shared_kv ? with_bias.with({Feature::shared_kv}) : with_bias;
}

/// Where the keys of one sequence lie that is kept in pages: key j in row j mod `tokens` of page pages[j / tokens].
struct PageTable {
  const std::int32_t* pages = nullptr;  ///< null: keys lie one behind the other
  std::int32_t tokens = 0;              ///< of a page: a multiple of 16

  /// Up to which key, at most `last`, keys lie behind `first` without a gap.
  constexpr std::int64_t end_of_run(std::int64_t first, std::int64_t last) const {
    return pages == nullptr ? last : std::min(last, (first / tokens + 1) * tokens);
  }
};

/// One key segment: k [batch][kv_count][keys.count][head_dim], v likewise with value_dim, and the bands of the mask
/// that touch queries × keys (disjoint, in order; none: nothing is visible).
struct KeySide {
  ConstRows k{}, v{};
  Run keys;
  std::span<const Band> bands;
  /// Backward only, as k and v in the accumulator's type. Both may begin in one place, as k and v may: dv is then added
  /// to what dk is.
  Rows dk{}, dv{};
  bool carry = false;  ///< backward only: add to dk, dv instead of overwriting them
  PageTable pages{};   ///< forward only, of one sequence: the first dimension of k and v then counts pages

  /// Elements from where `rows`, k or v, begin to key j of a head.
  constexpr std::int64_t offset(const ConstRows& rows, std::int64_t b, std::int64_t head, std::int64_t j) const {
    if (pages.pages == nullptr) return rows.offset(b, head, j);
    return rows.offset(pages.pages[j / pages.tokens], head, j % pages.tokens);
  }
};

/// (o, lse + lse_low) of `queries` over all `keys`, merged into what they hold when carry, else written.
/// A query that sees no key in them leaves the carry as it is, or gives (0, −∞ + 0).
struct AttendArgs {
  TileShape shape;
  ConstRows q{};
  Run queries;
  std::span<const KeySide> keys;
  Rows o{};
  void* lse = nullptr;
  std::uint16_t* lse_low = nullptr;
  bool carry = false;
  void* max_logit = nullptr;  ///< null, or [batch][heads]: raised to the largest visible score; others may do so too
};

/// Gradients of the same tiles. lse and delta are those of the whole attention (docs/mathematics.md):
/// P = exp(scale·QKᵀ − lse − lse_low) ≤ 1, dV += Pᵀ dO, dS = P ∘ (dO Vᵀ − delta), dQ += scale·dS K, dK += scale·dSᵀ Q.
/// Operations of one list may share dk, dv (same key segment) but not dq.
struct AttendBackwardArgs {
  TileShape shape;
  ConstRows q{}, d_o{};
  const void* lse = nullptr;
  const std::uint16_t* lse_low = nullptr;
  const void* delta = nullptr;
  Run queries;
  std::span<const KeySide> keys;
  Rows dq{};
  bool carry = false;  ///< of dq, sums and squares
  /// Null, or [batch][kv_count][head_dim]: about what keys have in common. A kernel may then leave sums · shared out of
  /// dq, where sums [batch][q_count][queries] are of scale·dS over keys of its choice. squares, shaped alike or null,
  /// are the sums of squares of what sums round in proportion to. Unless carry, kernels overwrite both; those of GPUs
  /// overwrite sums alone, with zeros.
  const float* shared = nullptr;
  float* sums = nullptr;
  float* squares = nullptr;
};

/// into [batch][kv_count][head_dim] = about what the keys of a segment have in common, or 0.
struct ShareArgs {
  DType dtype = DType::fp32;
  std::int64_t batch = 1;
  int kv_count = 1, head_dim = 0;
  ConstRows k{};
  std::int64_t keys = 0;
  float* into = nullptr;
};

/// dq += sums · shared, where sums are more than rounding makes of a sum that is 0 (AttendBackwardArgs).
struct SettleArgs {
  TileShape shape;
  std::int64_t queries = 0;
  Rows dq{};  ///< fp32
  const float* sums = nullptr;
  const float* squares = nullptr;
  const float* shared = nullptr;
  const float* delta = nullptr;
  const float* products = nullptr;  ///< null, or those of delta (DeltaArgs)
};

/// into ⊕= from: `rows` partials of `dim` values. The o of `from` may be 16-bit (wire); statistics never are.
struct MergeArgs {
  DType accumulator = DType::fp32;
  std::int64_t rows = 0;
  int dim = 0;
  void* o = nullptr;
  void* lse = nullptr;
  std::uint16_t* lse_low = nullptr;
  DType from_dtype = DType::fp32;
  const void* from_o = nullptr;
  const void* from_lse = nullptr;
  const std::uint16_t* from_lse_low = nullptr;
};

/// into += from. squares, if not null, are those of `into`, which holds sums (AttendBackwardArgs).
struct AccumulateArgs {
  DType accumulator = DType::fp32;
  std::int64_t count = 0;
  void* into = nullptr;
  DType from_dtype = DType::fp32;
  const void* from = nullptr;
  float* squares = nullptr;
};

/// into = from in another element type, rounded to nearest even.
struct ConvertArgs {
  std::int64_t count = 0;
  DType into_dtype = DType::fp32;
  void* into = nullptr;
  DType from_dtype = DType::fp32;
  const void* from = nullptr;
};

/// `count` elements at `into` become `value`, which is 0 for elements of 16 bits.
struct FillArgs {
  DType dtype = DType::fp32;
  void* into = nullptr;
  std::int64_t count = 0;
  double value = 0;
};

/// delta[row] = Σ_x d_o[row][x] · o[row][x].
struct DeltaArgs {
  DType dtype = DType::fp32;        ///< of d_o
  DType accumulator = DType::fp32;  ///< of o and delta
  std::int64_t rows = 0;
  int dim = 0;
  const void* o = nullptr;
  std::int64_t o_stride = 0;  ///< elements from row to row
  const void* d_o = nullptr;
  std::int64_t d_o_stride = 0;
  void* delta = nullptr;      ///< one after the other
  float* products = nullptr;  ///< null, or likewise Σ_x (d_o[row][x] · o[row][x])²; kernels of GPUs leave it as it is
};

/// (o, lse) ⊕= (0, logit of the head): `o` [batch][heads][tokens][dim] in any arrangement, statistics as they are.
struct SinkArgs {
  DType accumulator = DType::fp32;  ///< of all numbers
  std::int64_t batch = 1, tokens = 0;
  int heads = 1, dim = 0;
  const void* logits = nullptr;  ///< of these heads
  Rows o{};
  void* lse = nullptr;
  std::uint16_t* lse_low = nullptr;
};

/// Rows of some heads: their statistics of the whole attention, [batch][heads][tokens].
struct SinkRows {
  std::int64_t batch = 1, tokens = 0;
  int first_head = 0, heads = 1;  ///< among those of the gradient
  const void* lse = nullptr;
  const std::uint16_t* lse_low = nullptr;
  const void* delta = nullptr;

  DISTATTN_HOST_DEVICE constexpr bool has(int head) const { return first_head <= head && head < first_head + heads; }
  /// Where the statistics of a head of the gradient begin.
  DISTATTN_HOST_DEVICE constexpr std::int64_t first(std::int64_t sequence, int head) const {
    return (sequence * heads + head - first_head) * tokens;
  }
};

/// gradients[head] = −Σ e^(logits[head] − lse − lse_low) · delta over all rows of the head.
struct SinkGradientArgs {
  DType accumulator = DType::fp32;  ///< of all numbers; sums are fp64
  int heads = 1;
  const void* logits = nullptr;
  void* gradients = nullptr;
  std::span<const SinkRows> rows;
};

/// Set from another thread to end a kernel early; it is looked at once per tile. What was computed is then undefined.
using StopFlag = std::atomic<bool>;

}  // namespace distattn::kernels
