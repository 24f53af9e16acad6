#pragma once
/// primitives.cuh on the device: sm_80 and later.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.hpp"
#include "kernels/element.hpp"

#define DISTATTN_UNROLL _Pragma("unroll")
#define DISTATTN_NO_UNROLL _Pragma("unroll 1")
#define DISTATTN_SHARED_MEMORY(name) extern __shared__ __align__(1024) std::byte name[]

namespace distattn::kernels::cuda::prim {

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float min_or_nan(float a, float b) {
  float smaller;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
  return smaller;
}
__device__ __forceinline__ float max_or_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}
__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }

__device__ __forceinline__ float to_float(Bf16 x) { return __uint_as_float(static_cast<std::uint32_t>(x.bits) << 16); }
__device__ __forceinline__ float to_float(Fp16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(double x) { return static_cast<float>(x); }

template <class Element>
__device__ __forceinline__ Element from_float(float x);
template <>
__device__ __forceinline__ Bf16 from_float<Bf16>(float x) {
  Bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
template <>
__device__ __forceinline__ Fp16 from_float<Fp16>(float x) {
  Fp16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ double from_float<double>(float x) {
  return static_cast<double>(x);
}

template <class Element>
__device__ __forceinline__ std::uint32_t pack(float low, float high);
template <>
__device__ __forceinline__ std::uint32_t pack<Bf16>(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
template <>
__device__ __forceinline__ std::uint32_t pack<Fp16>(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

template <class T>
__device__ __forceinline__ T load_global(const T* from) {
  return *from;
}
template <class T>
__device__ __forceinline__ void store_global(T* into, T value) {
  *into = value;
}
__device__ __forceinline__ void add_global(float* into, float value) { atomicAdd(into, value); }
__device__ __forceinline__ void raise_global(float* into, float value) {
  // Floats without a sign are in the order of integers, others in the opposite one, and all of them after the former.
  const int bits = value != value ? 0x7fffffff : __float_as_int(value + 0.0f);
  if (bits >= 0) {
    atomicMax(reinterpret_cast<int*>(into), bits);
  } else {
    atomicMin(reinterpret_cast<unsigned*>(into), static_cast<unsigned>(bits));
  }
}
__device__ __forceinline__ bool raised(const int* flag) {
  return flag != nullptr && *static_cast<const volatile int*>(flag) != 0;
}
__device__ __forceinline__ bool any_thread(bool value) { return __syncthreads_or(value) != 0; }

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}
template <class T>
__device__ __forceinline__ T load_shared(std::uint32_t address) {
  return *static_cast<const T*>(__cvta_shared_to_generic(address));
}
template <class T>
__device__ __forceinline__ void store_shared(std::uint32_t address, T value) {
  *static_cast<T*>(__cvta_shared_to_generic(address)) = value;
}

__device__ __forceinline__ void copy_async_16(std::uint32_t into, const void* from, bool valid) {
  const int bytes_read = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(into), "l"(from), "r"(bytes_read) : "memory");
}
__device__ __forceinline__ void copy_async_4(std::uint32_t into, const void* from, bool valid) {
  const int bytes_read = valid ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(into), "l"(from), "r"(bytes_read) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int groups>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

__device__ __forceinline__ void load_matrices(std::uint32_t (&fragment)[4], std::uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(row_address)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&fragment)[4], std::uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(row_address)
               : "memory");
}

template <class Element>
__device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);
template <>
__device__ __forceinline__ void mma<Bf16>(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                          std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void mma<Fp16>(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                          std::uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// More dynamic shared memory than this a kernel must ask for.
inline constexpr std::size_t free_shared_bytes = 48 * 1024;

/// 1 where nobody can say.
inline unsigned multiprocessors() {
  int device = 0, count = 0;
  const bool known = cudaGetDevice(&device) == cudaSuccess &&
                     cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) == cudaSuccess;
  return known ? static_cast<unsigned>(count) : 1;
}

/// Returns the status of its own calls, whatever error the thread has left unread. Without blocks the kernel is loaded
/// and not started.
template <class Params>
int launch(void (*kernel)(Params), const LaunchShape& shape, Stream stream, const Params& params) {
  const void* const entry = reinterpret_cast<const void*>(kernel);
  if (shape.blocks == 0) {
    cudaFuncAttributes attributes{};
    return cudaFuncGetAttributes(&attributes, entry);
  }
  if (shape.shared_bytes > free_shared_bytes) {
    const cudaError_t status =
        cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
    if (status != cudaSuccess) return status;
  }
  void* arguments[] = {const_cast<Params*>(&params)};
  return cudaLaunchKernel(entry, dim3(shape.blocks), dim3(shape.threads), arguments, shape.shared_bytes,
                          static_cast<cudaStream_t>(stream));
}

}  // namespace distattn::kernels::cuda::prim
