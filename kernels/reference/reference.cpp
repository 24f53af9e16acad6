#include "kernels/reference/reference.hpp"

#include "kernels/elementwise.hpp"

namespace distattn::kernels {

const HostKernels& reference_kernels() {
  static constexpr HostKernels kernels{
      .name = "reference",
      .features = element_types.with(score_features).with({Feature::shared_kv}),
      .query_block = [] { return 1; },
      .reads_pages = true,
      .attend = reference::attend,
      .attend_backward = reference::attend_backward,
      .merge = merge,
      .accumulate = accumulate,
      .convert = convert,
      .delta = delta,
      .share = share_nothing,
      .settle = settle,
      .rearrange = rearrange,
      .merge_sinks = merge_sinks,
      .differentiate_sinks = differentiate_sinks,
  };
  return kernels;
}

}  // namespace distattn::kernels
