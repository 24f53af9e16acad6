/// Which kernels the CUDA device computes steps with, and how it starts them.

#include "backends/cuda/launches.hpp"

#include <map>

#include "simt/device_case.hpp"

namespace {

using namespace distattn;
using namespace simt;
using test::Inputs;
using test::run_sharded;
using test::ShardedRun;

std::vector<kernels::cuda::TilePass> backward_passes(int architecture, GradientOrder order, int head_dim) {
  std::vector<kernels::cuda::TilePass> passes;
  const backends::cuda::TileWork work{{DType::bf16, 1, {}, head_dim, 128}, 512};
  for (const auto* kernel : backends::cuda::tile_kernels(Pass::backward, work, {{architecture}, order})) {
    passes.push_back(kernel->pass);
  }
  return passes;
}

}  // namespace

TEST_CASE("gradients take one pass where a kernel may add to dq in any order", "[simt]") {
  using kernels::cuda::TilePass;
  const std::vector<TilePass> one{TilePass::gradients}, two{TilePass::query_gradient, TilePass::key_gradients};
  CHECK(backward_passes(90, GradientOrder::any, 128) == one);
  CHECK(backward_passes(90, GradientOrder::fixed, 128) == two);
  CHECK(backward_passes(90, GradientOrder::any, 192) == one);
  CHECK(backward_passes(90, GradientOrder::fixed, 192) == two);
  CHECK(backward_passes(90, GradientOrder::any, 256) == two);
  CHECK(backward_passes(80, GradientOrder::any, 128) == two);
}

TEST_CASE("all kernels among which there is a choice compute the same", "[simt][again]") {
  int compared = 0;
  for (const auto& [head_dim, value_dim] :
       {std::pair(64, 64), std::pair(128, 128), std::pair(192, 128), std::pair(256, 256)}) {
    const Problem problem = problem_of(DType::bf16, 210, head_dim == 64 ? 2 : 1, 1, head_dim, value_dim);
    gpu = std::make_unique<simt::EmulatedDriver>(device_seed, 90);
    for (const auto& [pass, order] :
         {std::pair(Pass::forward, GradientOrder::any), std::pair(Pass::backward, GradientOrder::any),
          std::pair(Pass::backward, GradientOrder::fixed)}) {
      asked.gradient_order = order;
      std::map<std::string, int> used;
      for (const KernelVariant& each : make_device("cuda", {})->variants(problem, pass)) {
        CAPTURE(each.name, head_dim);
        used[each.part] += each.used ? 1 : 0;
        asked.gpu.variant = each.name;
        check(problem, run_of("ring", 1), 90);
        asked.gpu.variant.clear();
        ++compared;
      }
      for (const auto& [part, count] : used) {
        CAPTURE(part);
        CHECK(count == 1);
      }
    }
  }
  asked.gradient_order = GradientOrder::any;
  CHECK(compared > 10);
  asked.gpu.variant = "64x1";
  CHECK_THROWS_AS(make_device("cuda", {}), Error);
  asked.gpu.variant.clear();
}

TEST_CASE("what no kernel computes is refused, naming what exists", "[simt]") {
  gpu = std::make_unique<simt::EmulatedDriver>(device_seed);
  const auto device = make_device("cuda", {});
  CHECK(device->why_not(problem_of(DType::fp16, 8, 1, 1, 256, 8), Pass::backward).empty());
  const std::string why = device->why_not(problem_of(DType::fp64, 8, 1, 1, 64, 64), Pass::forward);
  CHECK(why.find("no CUDA kernel for fp64") != std::string::npos);
  CHECK(why.find("bf16 128/128 from sm_80") != std::string::npos);
}

TEST_CASE("latents of MLA on the device", "[simt][again]") {
  Problem problem = problem_of(DType::bf16, 41, 4, 1, 576, 512);
  problem.shared_kv = true;
  check(problem, run_of("zigzag-ring", 2));
  problem.head_dim = 40;
  problem.value_dim = 24;
  problem.scores.sink_logits = true;
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    problem.dtype = dtype;
    for (const char* schedule : {"ring", "zigzag-ring/burst:zigzag", "striped-ring"})
      check(problem, run_of(schedule, 3));
  }
  check(problem, run_of("zigzag-ring", 2), 90);
}

TEST_CASE("no kernel is chosen that asks for more shared memory than the GPU has", "[simt]") {
  gpu = std::make_unique<simt::EmulatedDriver>(device_seed, 89);
  gpu->limit_shared_memory(99 * 1024);
  const auto small = make_device("cuda", {});
  CHECK(small->why_not(problem_of(DType::bf16, 8, 1, 1, 64, 64), Pass::backward).empty());
  CHECK_THAT(small->why_not(problem_of(DType::bf16, 8, 1, 1, 256, 256), Pass::backward),
             contains_text("256/256 on sm_89 in the 101376 bytes of shared memory that a block may have"));
}

TEST_CASE("kernels are loaded before the first step", "[simt]") {
  gpu = std::make_unique<simt::EmulatedDriver>(device_seed);
  gpu->fail_when("load attention", 1);
  CHECK_THROWS_WITH(run_sharded(Inputs(problem_of(DType::bf16, 50, 2, 1, 16, 16), device_seed), run_of("ring", 1)),
                    contains_text("could not load attention"));
}

TEST_CASE("kernels of a step start as one graph, run after run", "[simt][again]") {
  asked.gpu.step_graphs = StepGraphs::always;
  const Problem problem = problem_of(DType::bf16, 37, 4, 2, 16, 24);
  for (const char* const schedule : {"zigzag-ring/burst:zigzag", "balanced", "mesh:2x1x2", "ulysses"}) {
    ShardedRun run = run_of(schedule, std::string_view(schedule) == "mesh:2x1x2" ? 4 : 2);
    run.runs = 3;
    check(problem, run);
    CHECK(gpu->graphs() > 0);
    CHECK(gpu->graph_starts() == run.runs * gpu->graphs());
  }
  check(problem, run_of("zigzag-ring", 2), 90);
  CHECK(gpu->graphs() > 0);

  ShardedRun forward = run_of("ring", 1);  // one kernel a step
  forward.options.passes = Passes::forward;
  gpu = std::make_unique<simt::EmulatedDriver>(device_seed);
  run_sharded(Inputs(problem, device_seed), forward);
  CHECK(gpu->graphs() == 0);

  gpu = std::make_unique<simt::EmulatedDriver>(device_seed);
  gpu->fail_when("start attention", 1);
  CHECK_THROWS_WITH(run_sharded(Inputs(problem, device_seed), run_of("ring", 1)),
                    contains_text("could not start attention"));
  asked.gpu.step_graphs = StepGraphs::never;
  check(problem, run_of("balanced", 2));
  CHECK(gpu->graphs() == 0);
}
