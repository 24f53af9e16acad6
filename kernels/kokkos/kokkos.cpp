#include "kernels/kokkos/kokkos.hpp"

#include "kernels/elementwise.hpp"
#include "kernels/kokkos/select.hpp"

namespace distattn::kernels {

namespace {

std::string why_not(const TileShape& shape) {
  if (shape.dtype == DType::fp64) return "kokkos computes fp32, bf16 and fp16, not fp64; take backend reference";
  return "";
}

}  // namespace

const HostKernels& kokkos_kernels() {
  static constexpr HostKernels kernels{
      .name = "kokkos",
      .why_not = why_not,
      .query_block = [] { return kokkos::vector_kernels().query_block; },
      .few_queries = [] { return kokkos::vector_kernels().few_queries; },
      .attend = kokkos::attend,
      .attend_backward = kokkos::attend_backward,
      .merge = merge,
      .accumulate = accumulate,
      .convert = convert,
      .delta = delta,
      .rearrange = rearrange,
  };
  return kernels;
}

}  // namespace distattn::kernels
