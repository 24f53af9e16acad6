#include "kernels/kokkos/kokkos.hpp"

#include "kernels/elementwise.hpp"
#include "kernels/kokkos/select.hpp"

namespace distattn::kernels {

const HostKernels& kokkos_kernels() {
  static constexpr HostKernels kernels{
      .name = "kokkos",
      .features = {Feature::fp32, Feature::bf16, Feature::fp16, Feature::softcap, Feature::sink_logits, Feature::alibi,
                   Feature::max_logit, Feature::dropout},
      .instead = "; take backend reference",
      .query_block = [] { return kokkos::vector_kernels().query_block; },
      .few_queries = [] { return kokkos::vector_kernels().few_queries; },
      .attend = kokkos::attend,
      .attend_backward = kokkos::attend_backward,
      .merge = merge,
      .accumulate = accumulate,
      .convert = convert,
      .delta = delta,
      .share = kokkos::share,
      .settle = settle,
      .rearrange = rearrange,
      .merge_sinks = merge_sinks,
      .differentiate_sinks = differentiate_sinks,
  };
  return kernels;
}

}  // namespace distattn::kernels
