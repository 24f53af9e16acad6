#include "simt/device_case.hpp"

#include "backends/cuda/device.hpp"
#include "cli/tools/tolerance.hpp"

namespace simt {

std::unique_ptr<EmulatedDriver> gpu;
distattn::DeviceOptions asked;

}  // namespace simt

namespace distattn {

/// Stands for the registry, which would want a real GPU.
std::unique_ptr<Device> make_device(std::string_view, const DeviceOptions& options) {
  DeviceOptions all = options;
  all.gradient_order = simt::asked.gradient_order;
  all.gpu.step_graphs = simt::asked.gpu.step_graphs;
  all.gpu.variant = simt::asked.gpu.variant;
  return backends::cuda::make_cuda_device(*simt::gpu, all);
}

}  // namespace distattn

namespace simt {

using namespace distattn;

Problem problem_of(DType dtype, std::int64_t tokens, int heads, int kv_heads, int head_dim, int value_dim) {
  Problem problem;
  problem.seq_q = problem.seq_kv = tokens;
  problem.heads = heads;
  problem.kv_heads = kv_heads;
  problem.head_dim = head_dim;
  problem.value_dim = value_dim;
  problem.dtype = dtype;
  problem.mask = causal_mask();
  return problem;
}

test::ShardedRun run_of(const std::string& schedule, int ranks) {
  test::ShardedRun run;
  run.options.schedule = schedule;
  run.options.passes = Passes::both;
  run.ranks = ranks;
  return run;
}

void check(const Problem& problem, const test::ShardedRun& run, int architecture) {
  gpu = std::make_unique<EmulatedDriver>(device_seed, architecture);
  const test::Inputs inputs(problem, device_seed);
  const ExactResult exact = test::exact_of(inputs);
  CAPTURE(run.options.schedule, run.ranks, problem.mask.name, name_of(problem.dtype));
  CHECK(test::largest_error(test::run_sharded(inputs, run), exact) <= tolerance(problem, 4 * run.ranks));
}

}  // namespace simt
