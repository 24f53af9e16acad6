#include "kernels/vector/cpu.hpp"

#include "kernels/elementwise.hpp"
#include "kernels/vector/select.hpp"

namespace distattn::kernels {

namespace {

void attend_on_team(std::span<const AttendArgs> operations, Team& team, const StopFlag& stop) {
  vector::attend(operations, team, stop, vector::launch_on_team);
}
void attend_backward_on_team(std::span<const AttendBackwardArgs> operations, Team& team, const StopFlag& stop) {
  vector::attend_backward(operations, team, stop, vector::launch_on_team);
}

// Weights of few queries are not rounded. By what rounding would make of delta, sums would then be dropped that are
// needed: few keys share something by chance.
void settle_sums(std::span<const SettleArgs> operations, Team& team, const StopFlag& stop) {
  for (const SettleArgs& args : operations) {
    const std::span one(&args, 1);
    if (vector::multiplies_pairs(args.shape.dtype) && args.queries > vector::vector_kernels().few_queries) {
      settle_rounded(one, team, stop);
    } else {
      settle(one, team, stop);
    }
  }
}

}  // namespace

const HostKernels& cpu_kernels() {
  static constexpr HostKernels kernels{
      .name = "cpu",
      .features = element_types.without({Feature::fp64}).with(score_features).with({Feature::shared_kv}),
      .query_block = [] { return vector::vector_kernels().query_block; },
      .few_queries = [] { return vector::vector_kernels().few_queries; },
      .coefficients = [](DType dtype) { return vector::multiplies_pairs(dtype) ? dtype : accumulator_of(dtype); },
      .reads_pages = true,
      .attend = attend_on_team,
      .attend_backward = attend_backward_on_team,
      .merge = merge,
      .accumulate = accumulate,
      .convert = convert,
      .delta = delta,
      .share = vector::share,
      .settle = settle_sums,
      .rearrange = rearrange,
      .merge_sinks = merge_sinks,
      .differentiate_sinks = differentiate_sinks,
  };
  return kernels;
}

}  // namespace distattn::kernels
