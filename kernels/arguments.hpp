#pragma once
/// What every kernel takes: plain structs of pointers, shapes and bands. No steps, events or ranks.
///
/// All arrays are packed [batch][head][token][dim] (statistics: [batch][head][token]), 64-byte aligned. Inputs have
/// elements of `dtype`; results and statistics are fp32, or fp64 where dtype is fp64. Products are summed in that type.

#include <atomic>
#include <cstdint>
#include <span>

#include "distattn/band.hpp"
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

/// Shapes and scale that the tiles of one operation share.
struct TileShape {
  DType dtype = DType::fp32;
  std::int64_t batch = 1;
  Heads heads;
  int head_dim = 0, value_dim = 0;
  double scale = 1;
  friend bool operator==(const TileShape&, const TileShape&) = default;
};

/// One key segment: k [batch][kv_count][keys.count][head_dim], v likewise with value_dim, and the bands of the mask
/// that touch queries × keys (disjoint, in order; none: nothing is visible).
struct KeySide {
  const void* k = nullptr;
  const void* v = nullptr;
  Run keys;
  std::span<const Band> bands;
  void* dk = nullptr;  ///< backward only, as k in the accumulator's type
  void* dv = nullptr;
  bool carry = false;  ///< backward only: add to dk, dv instead of overwriting them
};

/// (o, lse) of `queries` over all `keys`, merged into what (o, lse) holds when carry, else written.
/// A query that sees no key in them leaves the carry as it is, or gives (0, −∞).
struct AttendArgs {
  TileShape shape;
  const void* q = nullptr;
  Run queries;
  std::span<const KeySide> keys;
  void* o = nullptr;
  void* lse = nullptr;
  bool carry = false;
};

/// Gradients of the same tiles. lse and delta are those of the whole attention (spec §5):
/// P = exp(scale·QKᵀ − lse), dV += Pᵀ dO, dS = P ∘ (dO Vᵀ − delta), dQ += scale·dS K, dK += scale·dSᵀ Q.
/// Operations of one list may share dk, dv (same key segment) but not dq.
struct AttendBackwardArgs {
  TileShape shape;
  const void* q = nullptr;
  const void* d_o = nullptr;
  const void* lse = nullptr;
  const void* delta = nullptr;
  Run queries;
  std::span<const KeySide> keys;
  void* dq = nullptr;
  bool carry = false;  ///< of dq
};

/// into ⊕= from: `rows` partials of `dim` values. The o of `from` may be 16-bit (wire); statistics never are.
struct MergeArgs {
  DType accumulator = DType::fp32;
  std::int64_t rows = 0;
  int dim = 0;
  void* o = nullptr;
  void* lse = nullptr;
  DType from_dtype = DType::fp32;
  const void* from_o = nullptr;
  const void* from_lse = nullptr;
};

/// into += from.
struct AccumulateArgs {
  DType accumulator = DType::fp32;
  std::int64_t count = 0;
  void* into = nullptr;
  DType from_dtype = DType::fp32;
  const void* from = nullptr;
};

/// into = from in another element type, rounded to nearest even.
struct ConvertArgs {
  std::int64_t count = 0;
  DType into_dtype = DType::fp32;
  void* into = nullptr;
  DType from_dtype = DType::fp32;
  const void* from = nullptr;
};

/// delta[row] = Σ_x d_o[row][x] · o[row][x].
struct DeltaArgs {
  DType dtype = DType::fp32;        ///< of d_o
  DType accumulator = DType::fp32;  ///< of o and delta
  std::int64_t rows = 0;
  int dim = 0;
  const void* o = nullptr;
  const void* d_o = nullptr;
  void* delta = nullptr;
};

/// Set from another thread to end a kernel early; it is looked at once per tile. What was computed is then undefined.
using StopFlag = std::atomic<bool>;

}  // namespace distattn::kernels
