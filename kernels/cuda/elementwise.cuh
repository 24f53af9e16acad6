#pragma once
/// Merging, adding, converting and moving: a warp a row, or four elements a thread.

#include <algorithm>
#include <cstdint>

#include "distattn/partial.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/statistics.cuh"
#include "kernels/element.hpp"

namespace distattn::kernels::cuda {

inline constexpr int elementwise_threads = 256;
inline constexpr std::int64_t elementwise_blocks = 2048;  // at most: enough to fill any device, then they loop

/// Calls visit(row, lane) for every row, a warp each.
template <class Visitor>
__device__ __forceinline__ void for_each_row_of_warp(std::int64_t rows, Visitor visit) {
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * elementwise_threads / 32;
  const std::int64_t warp = (static_cast<std::int64_t>(blockIdx.x) * elementwise_threads + threadIdx.x) / 32;
  for (std::int64_t row = warp; row < rows; row += warps) visit(row, static_cast<int>(threadIdx.x) % 32);
}

/// Calls visit(i) for every element, neighbours on neighbouring threads.
template <class Visitor>
__device__ __forceinline__ void for_each_element(std::int64_t count, Visitor visit) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * elementwise_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * elementwise_threads + threadIdx.x; i < count;
       i += threads) {
    visit(i);
  }
}

/// Of a row, for all lanes. One of them reads: another may write before its neighbours have read.
template <class Args>
__device__ __forceinline__ SplitLse<float> load_statistic(const Args& args, std::int64_t row, int lane) {
  const float high = lane == 0 ? prim::load_global(static_cast<const float*>(args.lse) + row) : 0.0f;
  const float low = lane == 0 ? load_low(args.lse_low, row) : 0.0f;
  return {__shfl_sync(0xffffffffu, high, 0), __shfl_sync(0xffffffffu, low, 0)};
}
template <class Args>
__device__ __forceinline__ void store_statistic(const Args& args, std::int64_t row, const SplitLse<float>& lse) {
  prim::store_global(static_cast<float*>(args.lse) + row, lse.high);
  store_low(args.lse_low, row, lse.low);
}

template <class From>
__global__ void __launch_bounds__(elementwise_threads) merge_rows(const __grid_constant__ MergeArgs args) {
  for_each_row_of_warp(args.rows, [&](std::int64_t row, int lane) {
    const SplitLse<float> lse = load_statistic(args, row, lane);
    const SplitLse<float> from_lse{prim::load_global(static_cast<const float*>(args.from_lse) + row),
                                   load_low(args.from_lse_low, row)};
    if (from_lse.high == -INFINITY) return;  // an empty side weighs nothing even where it holds no number
    const SplitMergeWeights<float> weights = merge_weights(lse, from_lse);
    auto* const o = static_cast<float*>(args.o) + row * args.dim;
    const auto* const from = static_cast<const From*>(args.from_o) + row * args.dim;
    for (int x = lane; x < args.dim; x += 32) {
      const float scaled = weights.scale_b * prim::to_float(prim::load_global(from + x));
      prim::store_global(o + x, lse.high == -INFINITY ? scaled : weights.scale_a * prim::load_global(o + x) + scaled);
    }
    if (lane == 0) store_statistic(args, row, weights.lse);
  });
}

__global__ void __launch_bounds__(elementwise_threads) merge_sink_rows(const __grid_constant__ SinkArgs args) {
  for_each_row_of_warp(args.batch * args.heads * args.tokens, [&](std::int64_t row, int lane) {
    // Divisions are calls: before there is something to keep in registers.
    const std::int64_t head_of_all = row / args.tokens, batch = head_of_all / args.heads;
    const std::int64_t head = head_of_all - batch * args.heads, token = row - head_of_all * args.tokens;
    auto* const o = static_cast<float*>(args.o.data) + args.o.offset(batch, head, token);
    const SplitLse<float> lse = load_statistic(args, row, lane);
    const SplitLse<float> logit{prim::load_global(static_cast<const float*>(args.logits) + head), 0};
    const SplitMergeWeights<float> weights = merge_weights(lse, logit);
    for (int x = lane; x < args.dim; x += 32) prim::store_global(o + x, weights.scale_a * prim::load_global(o + x));
    if (lane == 0) store_statistic(args, row, weights.lse);
  });
}

/// SinkGradientArgs with its rows, or some of them.
struct SinkGradientParams {
  static constexpr int most = 32;
  const float* logits = nullptr;
  float* gradients = nullptr;
  int heads = 0, count = 0;
  bool carry = false;  ///< add to the gradients of rows before
  SinkRows rows[most];
};

/// The sum of what all threads of a block have, for the first one: in one order.
__device__ __forceinline__ double over_block(double value, std::uint32_t memory) {
  const auto warp = static_cast<std::uint32_t>(threadIdx.x) / 32;
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  __syncthreads();  // nobody still reads what a head before has left
  if (threadIdx.x % 32 == 0) prim::store_shared(memory + warp * 8, value);
  __syncthreads();
  double sum = 0;
  for (std::uint32_t i = 0; threadIdx.x == 0 && i < elementwise_threads / 32; ++i) {
    sum += prim::load_shared<double>(memory + i * 8);
  }
  return sum;
}

/// A block a head.
__global__ void __launch_bounds__(elementwise_threads)
    differentiate_sink_rows(const __grid_constant__ SinkGradientParams p) {
  DISTATTN_SHARED_MEMORY(memory);
  for (int head = static_cast<int>(blockIdx.x); head < p.heads; head += static_cast<int>(gridDim.x)) {
    const float logit = prim::load_global(p.logits + head);
    double sum = 0;
    for (int i = 0; i < p.count; ++i) {
      const SinkRows& rows = p.rows[i];
      if (!rows.has(head)) continue;
      for (std::int64_t at = threadIdx.x; at < rows.batch * rows.tokens; at += elementwise_threads) {
        const std::int64_t row = rows.first(at / rows.tokens, head) + at % rows.tokens;
        const float lse = prim::load_global(static_cast<const float*>(rows.lse) + row);
        const float difference = (logit - lse) - load_low(rows.lse_low, row);
        const float weight = prim::ex2(prim::min_or_nan(difference * log2_of_e().top, 0.0f));
        sum -= static_cast<double>(weight) *
               static_cast<double>(prim::load_global(static_cast<const float*>(rows.delta) + row));
      }
    }
    sum = over_block(sum, prim::shared_address(memory));
    if (threadIdx.x != 0) continue;
    const float before = p.carry ? prim::load_global(p.gradients + head) : 0.0f;
    prim::store_global(p.gradients + head, static_cast<float>(static_cast<double>(before) + sum));
  }
}

template <class From>
__global__ void __launch_bounds__(elementwise_threads) add_elements(const __grid_constant__ AccumulateArgs args) {
  for_each_element(args.count, [&](std::int64_t i) {
    auto* const into = static_cast<float*>(args.into) + i;
    const float value = prim::to_float(prim::load_global(static_cast<const From*>(args.from) + i));
    prim::store_global(into, prim::load_global(into) + value);
  });
}

template <class Into, class From>
__global__ void __launch_bounds__(elementwise_threads) convert_elements(const __grid_constant__ ConvertArgs args) {
  for_each_element(args.count, [&](std::int64_t i) {
    const float value = prim::to_float(prim::load_global(static_cast<const From*>(args.from) + i));
    prim::store_global(static_cast<Into*>(args.into) + i, prim::from_float<Into>(value));
  });
}

template <class From>
__global__ void __launch_bounds__(elementwise_threads) delta_rows(const __grid_constant__ DeltaArgs args) {
  for_each_row_of_warp(args.rows, [&](std::int64_t row, int lane) {
    const auto* const o = static_cast<const float*>(args.o) + row * args.o_stride;
    const auto* const d_o = static_cast<const From*>(args.d_o) + row * args.d_o_stride;
    float sum = 0;
    for (int x = lane; x < args.dim; x += 32) {
      sum += prim::load_global(o + x) * prim::to_float(prim::load_global(d_o + x));
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) prim::store_global(static_cast<float*>(args.delta) + row, sum);
  });
}

/// In units of the row's largest element, whose square neither overflows nor vanishes.
template <class Element>
__global__ void __launch_bounds__(elementwise_threads) output_rows(const __grid_constant__ OutputOfDeltaArgs args) {
  for_each_row_of_warp(args.rows, [&](std::int64_t row, int lane) {
    const auto* const d_o = static_cast<const Element*>(args.d_o) + row * args.dim;
    auto* const o = static_cast<Element*>(args.o) + row * args.dim;
    float largest = 0;
    for (int x = lane; x < args.dim; x += 32)
      largest = fmaxf(largest, fabsf(prim::to_float(prim::load_global(d_o + x))));
    for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    if (largest == 0) largest = 1;
    float squares = 0;
    for (int x = lane; x < args.dim; x += 32) {
      const float part = prim::to_float(prim::load_global(d_o + x)) / largest;
      squares += part * part;
    }
    for (int step = 16; step > 0; step /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
    const float scale = squares > 0 ? prim::load_global(args.delta + row) / largest / squares : 0.0f;
    for (int x = lane; x < args.dim; x += 32) {
      const float part = prim::to_float(prim::load_global(d_o + x)) / largest;
      prim::store_global(o + x, prim::from_float<Element>(part * scale));
    }
  });
}

/// Neighbours that a thread moves at a time: a warp's request of one element each would be 64 bytes of 16-bit elements,
/// too few to fill the memory's bandwidth.
template <class Element, int count>
struct alignas(std::min<std::size_t>(16, count * sizeof(Element))) Neighbours {
  Element of[count];
};

/// RearrangeArgs in arrays that device code may index.
struct RearrangeParams {
  std::int64_t shape[4];
  void* into;
  std::int64_t into_strides[4];
  const void* from;
  std::int64_t from_strides[4];
  bool add;

  explicit RearrangeParams(const RearrangeArgs& args) : into(args.into), from(args.from), add(args.add) {
    std::copy_n(args.shape.data(), 4, shape);
    std::copy_n(args.into_strides.data(), 4, into_strides);
    std::copy_n(args.from_strides.data(), 4, from_strides);
  }
  /// Whether every row is `count` neighbours, and as many more, on a boundary of as many.
  template <class Into, class From>
  bool rows_of(int count) const {
    const auto on_boundary = [&](const void* data, std::size_t bytes, const std::int64_t(&strides)[4]) {
      return reinterpret_cast<std::uintptr_t>(data) % (static_cast<std::size_t>(count) * bytes) == 0 &&
             strides[3] == 1 &&
             std::all_of(strides, strides + 3, [&](std::int64_t stride) { return stride % count == 0; });
    };
    return shape[3] % count == 0 && on_boundary(into, sizeof(Into), into_strides) &&
           on_boundary(from, sizeof(From), from_strides);
  }
};

template <class Into, class From, int count>
__global__ void __launch_bounds__(elementwise_threads) rearrange_rows(const __grid_constant__ RearrangeParams p) {
  const std::int64_t heads = p.shape[1], tokens = p.shape[2];
  const std::int64_t* const to = p.into_strides;
  const std::int64_t* const of = p.from_strides;
  for_each_row_of_warp(p.shape[0] * heads * tokens, [&](std::int64_t row, int lane) {
    const std::int64_t b = row / (heads * tokens), h = row / tokens % heads, t = row % tokens;
    auto* const into = static_cast<Into*>(p.into) + b * to[0] + h * to[1] + t * to[2];
    const auto* const from = static_cast<const From*>(p.from) + b * of[0] + h * of[1] + t * of[2];
    for (std::int64_t x = lane * count; x < p.shape[3]; x += 32 * count) {
      auto* const into_some = reinterpret_cast<Neighbours<Into, count>*>(into + x * to[3]);
      const auto some = prim::load_global(reinterpret_cast<const Neighbours<From, count>*>(from + x * of[3]));
      Neighbours<Into, count> result;
      if (p.add) result = prim::load_global(into_some);
      DISTATTN_UNROLL
      for (int i = 0; i < count; ++i) {
        const float value = prim::to_float(some.of[i]);
        result.of[i] = prim::from_float<Into>(p.add ? value + prim::to_float(result.of[i]) : value);
      }
      prim::store_global(into_some, result);
    }
  });
}

struct WriteDrawArgs {
  DropoutDraw* into = nullptr;
  DropoutDraw draw;
};

__global__ void write_one_draw(const __grid_constant__ WriteDrawArgs args) { prim::store_global(args.into, args.draw); }

struct FillArgs {
  float* into = nullptr;
  std::int64_t count = 0;
  float value = 0;
};

__global__ void __launch_bounds__(elementwise_threads) fill_elements(const __grid_constant__ FillArgs args) {
  for_each_element(args.count, [&](std::int64_t i) { prim::store_global(args.into + i, args.value); });
}

}  // namespace distattn::kernels::cuda
