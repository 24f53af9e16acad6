#include "simt/primitive_kernels.hpp"

#include <cstring>

#include "kernels/cuda/primitives.cuh"

namespace simt::primitive {
namespace {

namespace prim = distattn::kernels::cuda::prim;
using distattn::kernels::Bf16;
using distattn::kernels::Fp16;

struct alignas(16) Words {
  std::uint32_t word[4];
};
struct alignas(8) Pair {
  std::uint32_t first, second;
};

__device__ std::uint32_t index() { return blockIdx.x * blockDim.x + threadIdx.x; }

__device__ float float_of(std::uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
__device__ std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

__global__ void ex2_each(const __grid_constant__ Arguments args) {
  const std::uint32_t i = index();
  if (i < args.count) prim::store_global(args.out + i, bits_of(prim::ex2(float_of(prim::load_global(args.in + i)))));
}

__global__ void smaller_of_neighbours(const __grid_constant__ Arguments args) {
  const std::uint32_t i = index();
  if (i + 1 >= args.count) return;
  const float one = float_of(prim::load_global(args.in + i)), other = float_of(prim::load_global(args.in + i + 1));
  prim::store_global(args.out + i, bits_of(prim::min_or_nan(one, other)));
}

__global__ void product_of_neighbours(const __grid_constant__ Arguments args) {
  const std::uint32_t i = index();
  if (i + 1 >= args.count) return;
  const float one = float_of(prim::load_global(args.in + i)), other = float_of(prim::load_global(args.in + i + 1));
  const float product = prim::product(one, other);
  prim::store_global(args.out + i, bits_of(product - 1));
}

template <class Element>
__global__ void widen(const __grid_constant__ Arguments args) {
  const std::uint32_t i = index();
  if (i >= args.count) return;
  const Element element{static_cast<std::uint16_t>(prim::load_global(args.in + i))};
  prim::store_global(args.out + i, bits_of(prim::to_float(element)));
}

template <class Element>
__global__ void narrow(const __grid_constant__ Arguments args) {
  const std::uint32_t i = index();
  if (i >= args.count) return;
  const float value = float_of(prim::load_global(args.in + i));
  const std::uint32_t alone = prim::from_float<Element>(value).bits;
  prim::store_global(args.out + i, alone | (prim::pack<Element>(0.0f, value) & 0xffff0000u));
}

__global__ void move_words(const __grid_constant__ Arguments args) {
  const std::uint32_t i = index();
  if (i >= args.count / 4) return;
  prim::store_global(reinterpret_cast<Words*>(args.out) + i,
                     prim::load_global(reinterpret_cast<const Words*>(args.in) + i));
}

__global__ void add_ones(const __grid_constant__ Arguments args) {
  prim::add_global(reinterpret_cast<float*>(args.out), 1.0f);
}

__global__ void vote(const __grid_constant__ Arguments args) {
  const std::uint32_t thread = threadIdx.x;
  std::uint32_t result = prim::raised(args.flag) ? 1 : 0;
  if (prim::any_thread(thread == prim::load_global(args.in))) result |= 2;
  if (prim::any_thread(false)) result |= 4;
  prim::store_global(args.out + thread, result);
}

__global__ void turn_round(const __grid_constant__ Arguments args) {
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t base = prim::shared_address(memory + 256), thread = threadIdx.x, other = 63 - thread;
  const std::uint32_t value = prim::load_global(args.in + thread);
  prim::store_shared(base + thread * 4, value);
  __syncthreads();
  prim::store_global(args.out + thread, prim::load_shared<std::uint32_t>(base + other * 4));
  __syncthreads();
  prim::store_shared(base + thread * 8, Pair{value, ~value});
  __syncthreads();
  const auto pair = prim::load_shared<Pair>(base + other * 8);
  prim::store_global(args.out + 64 + thread * 2, pair.first);
  prim::store_global(args.out + 65 + thread * 2, pair.second);
}

__global__ void copy_both(const __grid_constant__ Arguments args) {
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t base = prim::shared_address(memory), lane = threadIdx.x, small = base + 512;
  prim::copy_async_16(base + lane * 16, args.in + lane * 4, lane % 2 == 0);
  prim::copy_async_4(small + lane * 4, args.in + lane, lane % 2 == 0);
  prim::commit_copies();
  prim::wait_for_copies<0>();
  __syncwarp();
  for (std::uint32_t i = 0; i < 5; ++i) {
    prim::store_global(args.out + i * 32 + lane, prim::load_shared<std::uint32_t>(base + (i * 32 + lane) * 4));
  }
}

__global__ void copy_twice(const __grid_constant__ Arguments args) {
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t base = prim::shared_address(memory), lane = threadIdx.x, later = base + 128;
  prim::copy_async_4(base + lane * 4, args.in + lane, true);
  prim::commit_copies();
  prim::copy_async_4(later + lane * 4, args.in + 32 + lane, true);
  prim::commit_copies();
  prim::wait_for_copies<1>();
  __syncwarp();
  prim::store_global(args.out + lane, prim::load_shared<std::uint32_t>(base + (lane ^ 1u) * 4));
  prim::wait_for_copies<0>();
  __syncwarp();
  prim::store_global(args.out + 32 + lane, prim::load_shared<std::uint32_t>(later + (lane ^ 1u) * 4));
}

template <bool transposed>
__global__ void load_fragment(const __grid_constant__ Arguments args) {
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t base = prim::shared_address(memory), lane = threadIdx.x;
  for (std::uint32_t i = 0; i < 4; ++i) {
    prim::store_shared(base + (i * 32 + lane) * 4, prim::load_global(args.in + i * 32 + lane));
  }
  __syncwarp();
  std::uint32_t fragment[4];
  if (transposed) {
    prim::load_matrices_transposed(fragment, base + lane * 16);
  } else {
    prim::load_matrices(fragment, base + lane * 16);
  }
  for (std::uint32_t i = 0; i < 4; ++i) prim::store_global(args.out + lane * 4 + i, fragment[i]);
}

template <class Element>
__global__ void multiply(const __grid_constant__ Arguments args) {
  const std::uint32_t lane = threadIdx.x;
  const std::uint32_t* const in = args.in + lane * 10;
  std::uint32_t a[4];
  float d[4];
  for (int i = 0; i < 4; ++i) {
    a[i] = prim::load_global(in + i);
    d[i] = float_of(prim::load_global(in + 6 + i));
  }
  prim::mma<Element>(d, a, prim::load_global(in + 4), prim::load_global(in + 5));
  for (int i = 0; i < 4; ++i) prim::store_global(args.out + lane * 4 + static_cast<std::uint32_t>(i), bits_of(d[i]));
}

__global__ void hand_over(const __grid_constant__ Arguments args) {
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t base = prim::shared_address(memory), lane = threadIdx.x % 32;
  for (std::uint32_t i = 0; i < 4; ++i) {
    if (threadIdx.x < 32) {
      if (i > 0) prim::barrier_sync(2, 64);
      prim::store_shared(base + lane * 4, prim::load_global(args.in + i * 32 + lane));
      prim::barrier_arrive(1, 64);
    } else {
      prim::barrier_sync(1, 64);
      prim::store_global(args.out + i * 32 + (lane ^ 5u), prim::load_shared<std::uint32_t>(base + (lane ^ 5u) * 4));
      if (i < 3) prim::barrier_arrive(2, 64);
    }
  }
}

__global__ void shuffle(const __grid_constant__ Arguments args) {
  const std::uint32_t lane = threadIdx.x;
  const auto value = static_cast<int>(prim::load_global(args.in + lane));
  int sum = value;
  for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  prim::store_global(args.out + lane, static_cast<std::uint32_t>(sum + 1000 * __shfl_sync(0xffffffffu, value, 3)));
}

constexpr std::uint32_t large_shared_bytes = 64 * 1024;

__global__ void number_threads(const __grid_constant__ Arguments args) {
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t last = prim::shared_address(memory) + large_shared_bytes - 4;
  if (threadIdx.x == 0) prim::store_shared(last, blockIdx.x * 1000);
  __syncthreads();
  prim::store_global(args.out + index(), prim::load_shared<std::uint32_t>(last) + threadIdx.x);
}

int start(void (*kernel)(Arguments), unsigned threads, const Arguments& args, Stream stream) {
  return prim::launch(kernel, {1, threads, 1024}, stream, args);
}

int start_each(void (*kernel)(Arguments), const Arguments& args, Stream stream) {
  return prim::launch(kernel, {(args.count + 255) / 256, 256, 0}, stream, args);
}

}  // namespace

int ex2(const Arguments& args, Stream stream) { return start_each(ex2_each, args, stream); }
int min_or_nan(const Arguments& args, Stream stream) { return start_each(smaller_of_neighbours, args, stream); }
int product(const Arguments& args, Stream stream) { return start_each(product_of_neighbours, args, stream); }
int bf16_to_float(const Arguments& args, Stream stream) { return start_each(widen<Bf16>, args, stream); }
int fp16_to_float(const Arguments& args, Stream stream) { return start_each(widen<Fp16>, args, stream); }
int float_to_bf16(const Arguments& args, Stream stream) { return start_each(narrow<Bf16>, args, stream); }
int float_to_fp16(const Arguments& args, Stream stream) { return start_each(narrow<Fp16>, args, stream); }
int move_global(const Arguments& args, Stream stream) { return start_each(move_words, args, stream); }
int add_global(const Arguments& args, Stream stream) { return prim::launch(add_ones, {4, 96, 0}, stream, args); }
int votes(const Arguments& args, Stream stream) { return start(vote, 64, args, stream); }
int move_shared(const Arguments& args, Stream stream) { return start(turn_round, 64, args, stream); }
int copy_async(const Arguments& args, Stream stream) { return start(copy_both, 32, args, stream); }
int copy_groups(const Arguments& args, Stream stream) { return start(copy_twice, 32, args, stream); }
int load_matrices(const Arguments& args, Stream stream) { return start(load_fragment<false>, 32, args, stream); }
int load_matrices_transposed(const Arguments& args, Stream stream) {
  return start(load_fragment<true>, 32, args, stream);
}
int mma_bf16(const Arguments& args, Stream stream) { return start(multiply<Bf16>, 32, args, stream); }
int mma_fp16(const Arguments& args, Stream stream) { return start(multiply<Fp16>, 32, args, stream); }
int barriers(const Arguments& args, Stream stream) { return start(hand_over, 64, args, stream); }
int shuffles(const Arguments& args, Stream stream) { return start(shuffle, 32, args, stream); }
int launch(const Arguments& args, Stream stream) {
  return prim::launch(number_threads, {3, 64, large_shared_bytes}, stream, args);
}

}  // namespace simt::primitive
