#pragma once
/// The kernels of a host device as a table of functions: the reference and the tuned ones differ in nothing else.

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "distattn/types.hpp"
#include "kernels/arguments.hpp"
#include "kernels/team.hpp"

namespace distattn::kernels {

/// into = from, or into += from, between two arrangements of [batch][head][token][dim]: packs a rank's tensors into
/// parts and unpacks results. Strides count elements along those four axes. Values are rounded to into's type.
struct RearrangeArgs {
  std::array<std::int64_t, 4> shape{};
  DType into_dtype = DType::fp32;
  void* into = nullptr;
  std::array<std::int64_t, 4> into_strides{};
  DType from_dtype = DType::fp32;
  const void* from = nullptr;
  std::array<std::int64_t, 4> from_strides{};
  bool add = false;  ///< into += from; into is then fp32 or fp64
};

/// Each function does a list of independent operations with all threads of a team and returns when they are done, or
/// soon after `stop` is set. Results do not depend on the number of threads, bit for bit. After a first call of its
/// kind and size a function allocates nothing.
template <class Args>
using HostKernel = void (*)(std::span<const Args> operations, Team& team, const StopFlag& stop);

struct HostKernels {
  const char* name = "";
  Features features;  ///< what the kernels compute; tiles that need more are refused
  /// Granularity of masking, in queries: within a group of this many, a key visible to one is computed for all
  /// (BandIndex::computed_pairs).
  int (*query_block)() = nullptr;
  /// Operations with at most this many queries read keys once for all query heads of a key head.
  int (*few_queries)() = [] { return 0; };
  /// What weights and gradients of scores are rounded to before they are multiplied, for operands of a type.
  DType (*coefficients)(DType dtype) = accumulator_of;
  bool reads_pages = false;  ///< whether attend takes keys in pages (PageTable)
  HostKernel<AttendArgs> attend = nullptr;
  HostKernel<AttendBackwardArgs> attend_backward = nullptr;
  HostKernel<MergeArgs> merge = nullptr;
  HostKernel<AccumulateArgs> accumulate = nullptr;
  HostKernel<ConvertArgs> convert = nullptr;
  HostKernel<DeltaArgs> delta = nullptr;
  HostKernel<ShareArgs> share = nullptr;
  HostKernel<SettleArgs> settle = nullptr;
  HostKernel<RearrangeArgs> rearrange = nullptr;
  HostKernel<SinkArgs> merge_sinks = nullptr;
  HostKernel<SinkGradientArgs> differentiate_sinks = nullptr;
};

/// Obvious loops in every element type; with fp64 the oracle.
const HostKernels& reference_kernels();

}  // namespace distattn::kernels
