#pragma once
/// Kernels of elementwise.hpp row by row, as threads of hosts and of devices do them.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "distattn/partial.hpp"
#include "kernels/arguments.hpp"
#include "kernels/element.hpp"
#include "kernels/statistics.hpp"

namespace distattn::kernels {

/// Rows [begin, end) of MergeArgs.
template <class Sum, class From>
DISTATTN_HOST_DEVICE void merge_rows(const MergeArgs& args, std::int64_t begin, std::int64_t end) {
  auto* lse = static_cast<Sum*>(args.lse);
  const auto* from_lse = static_cast<const Sum*>(args.from_lse);
  for (std::int64_t row = begin; row < end; ++row) {
    const SplitLse<Sum> before{lse[row], stored_low(args.lse_low, row)};
    const auto weights = merge_weights(before, {from_lse[row], stored_low(args.from_lse_low, row)});
    auto* o = static_cast<Sum*>(args.o) + row * args.dim;
    const auto* from = static_cast<const From*>(args.from_o) + row * args.dim;
    // An empty side weighs nothing even where it holds no number.
    if (from_lse[row] == -INFINITY) continue;
    const bool fresh = before.high == -INFINITY;
    for (int x = 0; x < args.dim; ++x) {
      const auto scaled = weights.scale_b * static_cast<Sum>(from[x]);
      o[x] = fresh ? scaled : weights.scale_a * o[x] + scaled;
    }
    lse[row] = weights.lse.high;
    store_low(args.lse_low, row, static_cast<float>(weights.lse.low));
  }
}

/// Σ_x a[x]·b[x] in eight interleaved sums, which compilers turn into vectors.
template <class A, class B>
DISTATTN_HOST_DEVICE double dot(const A* a, const B* b, int dim) {
  double sums[8] = {};
  int x = 0;
  for (; x + 8 <= dim; x += 8) {
    for (int lane = 0; lane < 8; ++lane) {
      sums[lane] += static_cast<double>(a[x + lane]) * static_cast<double>(b[x + lane]);
    }
  }
  for (; x < dim; ++x) sums[x % 8] += static_cast<double>(a[x]) * static_cast<double>(b[x]);
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/// Σ (a·b)²: how large a dot product would be whose terms had signs at random.
template <class A, class B>
DISTATTN_HOST_DEVICE float squared_products(const A* a, const B* b, int dim) {
  float sums[8] = {};
  for (int x = 0; x < dim; ++x) {
    const float product = static_cast<float>(a[x]) * static_cast<float>(b[x]);
    sums[x % 8] += product * product;
  }
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/// Rows [begin, end) of DeltaArgs.
template <class From, class Sum>
DISTATTN_HOST_DEVICE void delta_rows(const DeltaArgs& args, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const auto* o = static_cast<const Sum*>(args.o) + row * args.o_stride;
    const auto* d_o = static_cast<const From*>(args.d_o) + row * args.d_o_stride;
    static_cast<Sum*>(args.delta)[row] = static_cast<Sum>(dot(d_o, o, args.dim));
    if (args.products != nullptr) args.products[row] = squared_products(d_o, o, args.dim);
  }
}

/// Rows [begin, end), of all heads, of SinkArgs.
template <class Sum>
DISTATTN_HOST_DEVICE void merge_sink_rows(const SinkArgs& args, std::int64_t begin, std::int64_t end) {
  auto* lse = static_cast<Sum*>(args.lse);
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t head = row / args.tokens % args.heads;
    const auto weights = merge_weights(SplitLse<Sum>{lse[row], static_cast<Sum>(stored_low(args.lse_low, row))},
                                       {static_cast<const Sum*>(args.logits)[head], Sum(0)});
    auto* o = static_cast<Sum*>(args.o.data) + args.o.offset(row / (args.heads * args.tokens), head, row % args.tokens);
    for (int x = 0; x < args.dim; ++x) o[x] *= weights.scale_a;
    lse[row] = weights.lse.high;
    store_low(args.lse_low, row, static_cast<float>(weights.lse.low));
  }
}

/// What these rows, if the head is one of theirs, add to the gradient of its sink logit.
template <class Sum>
DISTATTN_HOST_DEVICE double sink_gradient_of(const SinkRows& rows, int head, double logit) {
  double sum = 0;
  if (!rows.has(head)) return sum;
  for (std::int64_t b = 0; b < rows.batch; ++b) {
    const std::int64_t first = rows.first(b, head);
    double of_sequence = 0;
    for (std::int64_t i = first; i < first + rows.tokens; ++i) {
      const double lse =
          static_cast<double>(static_cast<const Sum*>(rows.lse)[i]) + static_cast<double>(stored_low(rows.lse_low, i));
      const double above = logit - lse;
      const auto delta = static_cast<double>(static_cast<const Sum*>(rows.delta)[i]);
      of_sequence -= std::exp(above < 0 ? above : 0) * delta;
    }
    sum += of_sequence;
  }
  return sum;
}

/// What bf16 rounds by, in roundings of fp32.
inline constexpr float bf16_roundings = 0x1p12f;

/// The square of a number that is added to a sum, larger if the number was rounded for the wire.
template <class From>
DISTATTN_HOST_DEVICE float square_of(From from) {
  constexpr float rounded = std::is_same_v<From, Bf16> ? bf16_roundings : std::is_same_v<From, Fp16> ? 0x1p9f : 1.f;
  const float value = static_cast<float>(from) * rounded;
  return value * value;
}

}  // namespace distattn::kernels
