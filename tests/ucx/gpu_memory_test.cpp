/// Emulated GPUs whose messages UCX takes from their memory and leaves there, as where UCX was built with CUDA.

#include "backends/cuda/device.hpp"
#include "backends/ucx/transport.hpp"
#include "catch.hpp"
#include "cli/tools/tolerance.hpp"
#include "distattn/registry.hpp"
#include "distattn/table.hpp"
#include "launch/threads_meet.hpp"
#include "simt/emulated_driver.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/sharded.hpp"
#include "ucx/rank_world.hpp"

namespace {

/// All ranks of a test share one GPU.
std::unique_ptr<simt::EmulatedDriver> gpu;

}  // namespace

namespace distattn {

/// Stands for the registry, which would want a real GPU.
std::unique_ptr<Device> make_device(std::string_view, const DeviceOptions& options) {
  return backends::cuda::make_cuda_device(*gpu, options);
}

}  // namespace distattn

namespace {

using namespace distattn;

constexpr std::uint64_t seed = 57;
constexpr int ranks = 4;

}  // namespace

TEST_CASE("every schedule runs with messages between GPUs over UCX") {
  const Problem problem = test::uneven_problem();
  const test::Inputs inputs(problem, seed);
  const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
  for (const std::string& name : cases_to_run(all_schedule_names(problem, ranks))) {
    if (!std::holds_alternative<Recipe>(resolve_schedule(name, problem, ranks))) continue;
    for (const int node_size : {0, 2}) {
      gpu = std::make_unique<simt::EmulatedDriver>(seed);
      test::ShardedRun run;
      run.options.schedule = name;
      run.options.passes = Passes::both;
      run.options.node_size = node_size;
      run.options.ahead = node_size / 2;
      run.ranks = ranks;
      run.runs = 2;
      run.world = test::run_ucx_ranks;
      CAPTURE(name, node_size);
      CHECK(test::largest_error(test::run_sharded(inputs, run), exact) <= tolerance(problem, 4 * ranks));
      CHECK(gpu->pinned_bytes() == 0);
      CHECK(gpu->made_current() > 0);
    }
  }
}

TEST_CASE("a rank whose UCX does not reach GPUs has all of them go through host memory") {
  for (const bool all : {true, false}) {
    test::Port port(3);
    std::array<bool, 3> reached{};
    const auto messages = test::messages_of(3, [&](Rank rank) {
      const auto bootstrap = port.meet(rank);
      const auto gpu_memory = all || rank != 1 ? UCS_MEMORY_TYPE_HOST : UCS_MEMORY_TYPE_CUDA;
      const backends::ucx::UcxTransport transport(*bootstrap, gpu_memory);
      reached[static_cast<std::size_t>(rank)] = transport.reaches(MemorySpace::cuda);
      bootstrap->barrier();
    });
    CHECK(messages == std::vector<std::string>(3));
    CHECK(reached == std::array<bool, 3>{all, all, all});
  }
}
