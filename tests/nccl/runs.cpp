#include "nccl/runs.hpp"

#include "backends/cuda/device.hpp"
#include "distattn/registry.hpp"

namespace distattn {

/// Stands for the registry, which would want a real GPU.
std::unique_ptr<Device> make_device(std::string_view, const DeviceOptions& options) {
  return backends::cuda::make_cuda_device(test::own_gpu(), options);
}

namespace test {

ShardedRun run_of(const std::string& schedule, int ranks, const NcclWorld& world) {
  ShardedRun run;
  run.options.schedule = schedule;
  run.options.passes = Passes::both;
  run.ranks = ranks;
  run.world = [world](int size, const RankBody& body) { run_nccl_ranks(size, body, world); };
  return run;
}

std::string failure_of(const ShardedRun& run) {
  try {
    Problem problem = uneven_problem();
    problem.mask = full_mask();
    run_sharded(Inputs(problem, seed), run);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace test
}  // namespace distattn
