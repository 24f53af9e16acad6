#include "kernels/reference/reference.hpp"

#include "kernels/elementwise.hpp"

namespace distattn::kernels {

const HostKernels& reference_kernels() {
  static constexpr HostKernels kernels{
      .name = "reference",
      .features = element_types,
      .query_block = [] { return 1; },
      .attend = reference::attend,
      .attend_backward = reference::attend_backward,
      .merge = merge,
      .accumulate = accumulate,
      .convert = convert,
      .delta = delta,
      .share = share_nothing,
      .settle = settle,
      .rearrange = rearrange,
  };
  return kernels;
}

}  // namespace distattn::kernels
