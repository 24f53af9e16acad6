#pragma once
/// Everything that the CUDA kernels use beyond plain C++. Under nvcc thin wrappers of PTX; under a host compiler the
/// same names on the emulator of tests/simt, so that the kernels' own source is tested where there is no GPU.
///
///   ex2                           2^x, approximate (2 ulp)
///   min_or_nan                    the smaller of two; NaN if one is
///   max_or_nan                    the larger
///   reciprocal                    1/x, approximate (1 ulp)
///   product                       of two, rounded also where it is added to: never a part of a fused operation
///   to_float, from_float, pack    elements to and from fp32, rounded to nearest even; two of them in a register
///   load_global, store_global     one element of global memory, or an aligned vector of them
///   add_global                    atomic fp32 addition
///   raise_global                  atomic fp32 maximum, NaN above all
///   raised                        whether somebody has set a flag in device memory (null: never)
///   any_thread                    __syncthreads, and whether any thread of the block says true
///   shared_address                32-bit address of dynamic shared memory, as the next ones take it
///   load_shared, store_shared
///   copy_async_16, copy_async_4   cp.async, of zeros when not valid; commit_copies, wait_for_copies<newest groups>
///   load_matrices(_transposed)    ldmatrix.x4: lane l gives the address of row l%8 of matrix l/8
///   mma<Element>                  m16n8k16, fp32 accumulation: d += a·b
///   barrier_sync, barrier_arrive  named barriers
///   multiprocessors               of the current device, asked on the host; 0: nobody knows
///   launch                        a kernel on a stream; the CUDA runtime's status, 0 when it started
///
/// Kernels keep to: one block of dynamic shared memory (DISTATTN_SHARED_MEMORY), every access to it through these,
/// tensors in global memory likewise, fragments as arrays by reference, no branch on the architecture.
/// What only Hopper has stands in hopper/primitives.cuh.

#if defined(__CUDACC__)
#include "kernels/cuda/primitives_ptx.cuh"
#else
#include "simt/primitives.hpp"
#endif
