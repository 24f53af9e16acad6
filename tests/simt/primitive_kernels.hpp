#pragma once
/// A kernel for each primitive of kernels/cuda/primitives.cuh, for one block unless they say otherwise.

#include <cstdint>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/tensor_map.hpp"

namespace simt::primitive {

using distattn::kernels::cuda::Stream;
using distattn::kernels::cuda::TensorMap;

/// Arrays of 32-bit words, which a kernel takes for whatever it needs.
struct Arguments {
  const std::uint32_t* in = nullptr;
  std::uint32_t* out = nullptr;
  const int* flag = nullptr;
  std::uint32_t count = 0;
  TensorMap* maps = nullptr;  ///< two, for Hopper's kernels to fill before they start
};

/// Starts a kernel and returns the launcher's status.
using Kernel = int(const Arguments& args, Stream stream);

/// Each is a Kernel. Elements: count of in and of out, one a thread.
int ex2(const Arguments& args, Stream stream);
/// The smaller of an element and the next.
int min_or_nan(const Arguments& args, Stream stream);
/// The product of an element and the next, rounded, less 1.
int product(const Arguments& args, Stream stream);
/// Of 16-bit patterns in the low halves of `in`.
int bf16_to_float(const Arguments& args, Stream stream);
int fp16_to_float(const Arguments& args, Stream stream);
/// Word i: from_float(in[i]) below, and above it the high half of pack(0, in[i]).
int float_to_bf16(const Arguments& args, Stream stream);
int float_to_fp16(const Arguments& args, Stream stream);
/// Copies 16 bytes a thread.
int move_global(const Arguments& args, Stream stream);
/// Every thread of four blocks adds 1 to out[0].
int add_global(const Arguments& args, Stream stream);
/// Thread i: bit 0, whether the flag is raised; bit 1, whether any thread is thread in[0]; bit 2, whether any is none.
int votes(const Arguments& args, Stream stream);
/// 64 threads: out[i] = in[63 - i] through shared memory, behind a barrier; then the same as pairs of words.
int move_shared(const Arguments& args, Stream stream);
/// 32 threads copy 16 bytes each, then 4; those of an odd lane copy zeros. out: 128 words, then 32.
int copy_async(const Arguments& args, Stream stream);
/// 32 threads, two groups of copies: out[0…31] is read when the older has landed, out[32…63] when both have.
int copy_groups(const Arguments& args, Stream stream);
/// One warp, in: four matrices of 8 rows of 8 16-bit elements; out: four words a lane.
int load_matrices(const Arguments& args, Stream stream);
int load_matrices_transposed(const Arguments& args, Stream stream);
/// One warp: out = d = a·b + d; a lane has in[10·lane …]: four words of a, two of b, four floats of d.
int mma_bf16(const Arguments& args, Stream stream);
int mma_fp16(const Arguments& args, Stream stream);
/// Warp 0 hands four times 32 words of `in` to warp 1, which writes them to `out`.
int barriers(const Arguments& args, Stream stream);
/// One warp: out[lane] = the sum of in over the half of the warp that the lane is in, plus 1000 times in[lane 3].
int shuffles(const Arguments& args, Stream stream);
/// Three blocks of 64 threads with 64 KiB of shared memory, of which each uses the last word.
int launch(const Arguments& args, Stream stream);

}  // namespace simt::primitive
