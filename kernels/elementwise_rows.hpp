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

/// Rows [begin, end) of DeltaArgs.
template <class From, class Sum>
DISTATTN_HOST_DEVICE void delta_rows(const DeltaArgs& args, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const auto* o = static_cast<const Sum*>(args.o) + row * args.o_stride;
    const auto* d_o = static_cast<const From*>(args.d_o) + row * args.d_o_stride;
    static_cast<Sum*>(args.delta)[row] = static_cast<Sum>(dot(d_o, o, args.dim));
  }
}

/// The square of a number that is added to a sum, larger if the number was rounded for the wire.
template <class From>
DISTATTN_HOST_DEVICE float square_of(From from) {
  constexpr float rounded = std::is_same_v<From, Bf16> ? 0x1p12f : std::is_same_v<From, Fp16> ? 0x1p9f : 1.f;
  const float value = static_cast<float>(from) * rounded;
  return value * value;
}

}  // namespace distattn::kernels
