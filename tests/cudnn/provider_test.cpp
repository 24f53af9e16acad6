/// Both passes by cuDNN's provider on emulated GPUs, with a library in cuDNN's place that computes what it is told.

#include "backends/cudnn/provider.hpp"

#include <dlfcn.h>

#include <filesystem>

#include "backends/cuda/device.hpp"
#include "catch.hpp"
#include "cli/tools/tolerance.hpp"
#include "cudnn/standin.hpp"
#include "distattn/registry.hpp"
#include "distattn/table.hpp"
#include "simt/emulated_driver.hpp"
#include "tests/support/sharded.hpp"

namespace {

/// All ranks of a test share one GPU.
std::unique_ptr<simt::EmulatedDriver> gpu;

}  // namespace

namespace distattn {

/// Stands for the registry, which would want a real GPU.
std::unique_ptr<Device> make_device(std::string_view, const DeviceOptions& options) {
  using namespace backends;
  return cuda::make_cuda_device(*gpu, options, cudnn::make_provider(cudnn::load_library(DISTATTN_CUDNN_STANDIN), *gpu));
}

}  // namespace distattn

namespace {

using namespace distattn;
using test::Inputs;
using test::run_sharded;
using test::ShardedRun;

constexpr std::uint64_t seed = 57;

Problem small_problem(DType dtype = DType::bf16) {
  Problem problem;
  problem.seq_q = problem.seq_kv = 29;
  problem.heads = 4;
  problem.kv_heads = 2;
  problem.head_dim = 8;
  problem.value_dim = 16;
  problem.dtype = dtype;
  problem.mask = causal_mask();
  return problem;
}

ShardedRun run_of(const std::string& schedule, int ranks) {
  ShardedRun run;
  run.options.schedule = schedule;
  run.options.passes = Passes::both;
  run.ranks = ranks;
  return run;
}

void check(const Problem& problem, const ShardedRun& run) {
  gpu = std::make_unique<simt::EmulatedDriver>(seed);
  const Inputs inputs(problem, seed);
  const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
  CAPTURE(run.options.schedule, run.ranks, problem.mask.name, name_of(problem.dtype));
  CHECK(test::largest_error(run_sharded(inputs, run), exact) <= tolerance(problem, 4 * run.ranks));
}

std::string failure_of(const Problem& problem, const ShardedRun& run) {
  try {
    gpu = std::make_unique<simt::EmulatedDriver>(seed);
    run_sharded(Inputs(problem, seed), run);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string why_not_loaded(const std::string& name) {
  try {
    backends::cudnn::load_library(name);
    return "";
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::environment);
    return error.what();
  }
}

template <class Function>
Function* of_standin(const char* name) {
  void* const library = dlopen(DISTATTN_CUDNN_STANDIN, RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(library != nullptr);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

TEST_CASE("every schedule whose tiles can be expressed is right, others are refused") {
  const Problem problem = small_problem();
  int right = 0;
  for (const std::string& name : all_schedule_names(problem, 4)) {
    if (!std::holds_alternative<Recipe>(resolve_schedule(name, problem, 4))) continue;
    CAPTURE(name);
    const std::string failure = failure_of(problem, run_of(name, 4));
    if (failure.empty()) {
      check(problem, run_of(name, 4));
      ++right;
    } else {
      CHECK_THAT(failure, contains_text("take provider own"));
    }
  }
  CHECK(right >= 8);
}

TEST_CASE("masks of several bands, and rows that see nothing") {
  Problem problem = small_problem(DType::fp16);
  problem.mask.left = 9;
  problem.mask.sinks = 3;
  problem.mask.name = "window and sinks";
  check(problem, run_of("zigzag-ring", 2));
  problem.mask = causal_mask();
  problem.mask.documents = {0, 11, 18, 29};
  problem.mask.name = "documents";
  check(problem, run_of("striped-ring", 2));
  problem.mask = band_mask({{0, 9, 0, 9, 0, unbounded}, {15, 29, 5, 23, -5, 8}});
  problem.mask.name = "rows that see nothing";
  check(problem, run_of("ring", 3));
  problem.mask = full_mask();
  problem.batch = 2;
  check(problem, run_of("ring", 2));
}

TEST_CASE("gradients of a single pair are refused, its output is not") {
  Problem problem = small_problem();
  problem.mask.documents = {0, 28, 29};
  CHECK_THAT(failure_of(problem, run_of("ring", 1)), contains_text("single pair"));
  ShardedRun forward = run_of("ring", 1);
  forward.options.passes = Passes::forward;
  CHECK(failure_of(problem, forward).empty());
}

TEST_CASE("a plan is made once for each shape") {
  Problem problem = small_problem();
  problem.seq_q = problem.seq_kv = 28;
  problem.mask.documents = {0, 7, 14, 21, 28};
  gpu = std::make_unique<simt::EmulatedDriver>(seed);
  make_device("cuda", {});  // loads the library
  const auto plans = of_standin<decltype(standin_plans)>("standin_plans");
  const int before = plans();
  check(problem, run_of("ring", 1));
  CHECK(plans() == before + 2);  // one a pass
}

TEST_CASE("an execution that fails names rank and step") {
  check(small_problem(), run_of("ring", 2));
  of_standin<decltype(standin_fail)>("standin_fail")(2);
  const std::string failure = failure_of(small_problem(), run_of("ring", 2));
  CHECK_THAT(failure, contains_text("rank "));
  CHECK_THAT(failure, contains_text("step "));
  CHECK_THAT(failure, contains_text("cuDNN could not start an attention (execution failed: said by the stand-in)"));
}

TEST_CASE("what cuDNN does not compute is refused") {
  gpu = std::make_unique<simt::EmulatedDriver>(seed);
  const auto device = make_device("cuda", {});
  CHECK(device->why_not(small_problem(), Pass::forward).empty());
  CHECK(device->why_not(small_problem(), Pass::backward).empty());
  const auto ordered = make_device("cuda", {.gradient_order = GradientOrder::fixed});
  CHECK(ordered->why_not(small_problem(), Pass::forward).empty());
  CHECK_THAT(ordered->why_not(small_problem(), Pass::backward), contains_text("take provider own"));
  CHECK_THAT(device->why_not(small_problem(DType::fp32), Pass::forward), contains_text("fp32"));
  CHECK_THROWS_WITH(make_device("cuda", {.gpu = {.step_graphs = StepGraphs::always}}),
                    contains_text("take provider own"));
}

TEST_CASE("a library that is missing, or is not cuDNN, is named") {
  CHECK_THAT(why_not_loaded("libcudnn-of-nobody.so.9"), contains_text("libcudnn-of-nobody.so.9"));
  CHECK_THAT(why_not_loaded("libc.so.6"), contains_text("cudnnGetVersion"));
}

TEST_CASE("a cuDNN that is too old is refused") {
  backends::cudnn::load_library(DISTATTN_CUDNN_STANDIN);
  const auto set_version = of_standin<decltype(standin_version)>("standin_version");
  // Another name of the same file: what was loaded under a name is kept.
  const std::filesystem::path file = DISTATTN_CUDNN_STANDIN;
  const std::string renamed = file.parent_path() / "." / file.filename();
  set_version(91001);
  CHECK_THAT(why_not_loaded(renamed), contains_text("cuDNN 9.10.1 is too old (9.10.2 is needed)"));
  set_version(91002);
  CHECK(why_not_loaded(renamed).empty());
  set_version(91900);
}
