#pragma once
/// Log-sum-exps as two floats, and how every pass turns a score into a weight.
///
/// Passes round alike: a product of two rows is summed in one order; what scores.cuh makes of it, a level, is times its
/// unit a score in units of log2, and a weight is 2^(score - lse), of which exponent_of() rounds nothing but the
/// difference.

#include <cfloat>
#include <cmath>

#include "kernels/cuda/attend_params.hpp"
#include "kernels/cuda/primitives.cuh"

namespace distattn::kernels::cuda {

/// A number as two floats: what `top` cannot hold of it is in `rest`.
struct Split {
  float top, rest;
};

/// a + b, exactly (Knuth's two-sum).
__device__ __forceinline__ Split sum_of(float a, float b) {
  const float sum = a + b, of_b = sum - a;
  return {sum, (a - (sum - of_b)) + (b - of_b)};
}
/// a · b, exactly.
__device__ __forceinline__ Split product_of(float a, float b) {
  const float product = prim::product(a, b);
  return {product, fmaf(a, b, -product)};
}
/// a · b to twice the precision of a float.
__device__ __forceinline__ Split product_of(const Split& a, const Split& b) {
  const Split tops = product_of(a.top, b.top);
  return sum_of(tops.top, fmaf(a.rest, b.top, fmaf(a.top, b.rest, tops.rest)));
}

/// A constant.
__device__ __forceinline__ constexpr Split split(double value) {
  const auto top = static_cast<float>(value);
  return {top, static_cast<float>(value - static_cast<double>(top))};
}
__device__ __forceinline__ constexpr Split log2_of_e() { return split(1.4426950408889634074); }
__device__ __forceinline__ constexpr Split log_of_2() { return split(0.69314718055994530942); }

/// Of the weight, a power of 2, that a level's score has beside this lse: not above 0 if the score is not above it.
__device__ __forceinline__ float exponent_of(float level, float unit, const Split& lse) {
  return fmaf(level, unit, -lse.top) - lse.rest;
}
/// That weight, and never more than 1.
__device__ __forceinline__ float weight_of(float level, float unit, const Split& lse) {
  return prim::ex2(prim::min_or_nan(exponent_of(level, unit, lse), 0.0f));
}

/// Of a row that has seen nothing: below every score, and a number, so that differences from it are none of two
/// infinities.
__device__ __forceinline__ constexpr Split no_score() { return {-FLT_MAX, 0}; }

/// The largest score of a row so far, as the next tile's largest rising level changes it; -inf: there is none.
struct RunningTop {
  Split top;
  float rescale;  ///< of what was relative to the top before

  __device__ __forceinline__ RunningTop(const Split& before, float level, float unit) : top(before) {
    const Split score = product_of(level, unit);
    if (score.top > top.top || (score.top == top.top && score.rest > top.rest)) top = score;
    rescale = prim::ex2((before.top - top.top) + (before.rest - top.rest));
  }
};

/// An lse, and how much of it fp32 does not hold, from natural logarithms to units of log2.
__device__ __forceinline__ Split in_log2(float lse, float low) {
  return lse == -INFINITY ? no_score() : product_of(Split{lse, low}, log2_of_e());
}

/// The low part of a statistic, and where it goes: kernels/statistics.hpp on the device.
__device__ __forceinline__ float load_low(const std::uint16_t* lows, std::int64_t row) {
  return lows == nullptr ? 0.0f : prim::to_float(Fp16{prim::load_global(lows + row)});
}
__device__ __forceinline__ void store_low(std::uint16_t* lows, std::int64_t row, float low) {
  constexpr float most = 65504;
  if (lows == nullptr) return;
  prim::store_global(lows + row, prim::from_float<Fp16>(fminf(fmaxf(low, -most), most)).bits);
}

/// The lse of a row as a carry, in units of log2.
__device__ __forceinline__ Split load_lse(const QuerySegment& query, std::int64_t row) {
  return in_log2(prim::load_global(query.lse + row), load_low(query.lse_low, row));
}

/// The same for a backward pass, loaded before it is converted. At most what forward rounded to it, where that wrote
/// both parts: a row that sees one key weighs it by 1, however large their score is.
struct NaturalLse {
  float lse, low;

  __device__ __forceinline__ Split least_in_log2() const {
    constexpr float half_of_smallest = 0x1p-25f, half_of_last_bit = 0x1p-11f, of_conversions = 0x1p-43f;
    const float most_rounded = fmaxf(half_of_smallest, half_of_last_bit * fabsf(low)) + of_conversions * fabsf(lse);
    return in_log2(lse, low - most_rounded);
  }
};
__device__ __forceinline__ NaturalLse load_natural(const QuerySegment& query, std::int64_t row) {
  return {prim::load_global(query.lse + row), load_low(query.lse_low, row)};
}

/// Writes log(sum · 2^lse) of a row.
__device__ __forceinline__ void store_lse(const QuerySegment& query, std::int64_t row, const Split& lse, float sum) {
  Split natural{-INFINITY, 0};
  if (sum != 0) {
    // The powers of 2 in the sum are added exactly: what is left of its logarithm is below 1 and rounds by as little.
    int power = 0;
    const float fraction = 2 * frexpf(sum, &power);
    const Split tops = sum_of(lse.top, static_cast<float>(power - 1));
    natural = product_of(sum_of(tops.top, tops.rest + (lse.rest + log2f(fraction))), log_of_2());
  }
  const bool finite = natural.top - natural.top == 0;
  prim::store_global(query.lse + row, natural.top);
  store_low(query.lse_low, row, finite ? natural.rest : 0.0f);
}

}  // namespace distattn::kernels::cuda
