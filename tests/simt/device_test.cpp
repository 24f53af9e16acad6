/// The CUDA device as a whole, on an emulated GPU: schedules run by ranks that are threads, compared with float64.

#include "backends/cuda/device.hpp"

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>

#include "backends/cuda/launches.hpp"
#include "catch.hpp"
#include "distattn/registry.hpp"
#include "distattn/table.hpp"
#include "distattn/tolerance.hpp"
#include "simt/emulated_driver.hpp"
#include "tests/support/one_memory.hpp"
#include "tests/support/sharded.hpp"

namespace {

/// All ranks of a test share one GPU.
std::unique_ptr<simt::EmulatedDriver> gpu;
distattn::GradientOrder gradient_order = distattn::GradientOrder::any;
std::string variant;

}  // namespace

namespace distattn {

/// Stands for the registry, which would want a real GPU.
std::unique_ptr<Device> make_device(std::string_view, const DeviceOptions& options) {
  DeviceOptions asked = options;
  asked.gradient_order = gradient_order;
  asked.variant = variant;
  return backends::cuda::make_cuda_device(*gpu, asked);
}

}  // namespace distattn

namespace {

using namespace distattn;
using test::Inputs;
using test::run_sharded;
using test::ShardedRun;

constexpr std::uint64_t seed = 33;

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

ShardedRun run_of(const std::string& schedule, int ranks) {
  ShardedRun run;
  run.options.schedule = schedule;
  run.options.backward = true;
  run.ranks = ranks;
  return run;
}

void check(const Problem& problem, const ShardedRun& run, int architecture = 80) {
  gpu = std::make_unique<simt::EmulatedDriver>(seed, architecture);
  const Inputs inputs(problem, seed);
  const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
  CAPTURE(run.options.schedule, run.ranks, problem.mask.name, name_of(problem.dtype));
  CHECK(test::largest_error(run_sharded(inputs, run), exact) <= tolerance(problem, 4 * run.ranks));
}

void check_all_schedules(const Problem& problem, int ranks) {
  for (const std::string& name : all_schedule_names(problem, ranks)) {
    if (!std::holds_alternative<Recipe>(resolve_schedule(name, problem, ranks))) continue;
    check(problem, run_of(name, ranks));
  }
}

}  // namespace

TEST_CASE("every schedule runs on one GPU", "[simt]") {
  check_all_schedules(problem_of(DType::fp32, 13, 4, 2, 8, 16), 4);
}

TEST_CASE("every schedule runs on one GPU with other numbers of ranks", "[.long]") {
  for (const int ranks : {1, 2, 3, 4, 6, 8}) check_all_schedules(problem_of(DType::bf16, 29, 4, 2, 32, 24), ranks);
}

TEST_CASE("masks, element types, wires and strides of tensors", "[simt]") {
  Problem problem = problem_of(DType::fp32, 37, 2, 1, 8, 16);
  problem.mask.left = 9;
  problem.mask.sinks = 3;
  problem.mask.name = "window and sinks";
  ShardedRun run = run_of("zigzag-ring/burst:zigzag", 2);
  for (const auto order : {test::MemoryOrder::heads_last, test::MemoryOrder::backwards}) {
    run.order = order;
    check(problem, run);
  }

  problem.mask = causal_mask();
  problem.mask.documents = {0, 11, 12, 30, 37};
  problem.mask.name = "documents";
  run = run_of("striped-ring", 2);
  run.runs = 2;
  check(problem, run);

  problem.dtype = DType::fp16;
  problem.wire = DType::bf16;
  problem.batch = 2;
  check(problem, run_of("mesh:2x1x2", 4));
}

TEST_CASE("messages pass through pinned memory where a transport reaches no other", "[simt]") {
  const Problem problem = problem_of(DType::fp32, 13, 4, 2, 8, 16);
  for (const std::string& name : all_schedule_names(problem, 4)) {
    if (!std::holds_alternative<Recipe>(resolve_schedule(name, problem, 4))) continue;
    ShardedRun run = run_of(name, 4);
    run.runs = 2;
    run.options.routes = {2, 1};
    run.world = [](int ranks, const auto& body) {
      run_ranks(ranks, [&](Rank rank, Transport& transport) {
        test::OneMemory host_only(transport);
        body(rank, host_only);
      });
    };
    check(problem, run);
  }
}

TEST_CASE("nobody listens to a transport on behalf of a run that has ended", "[simt]") {
  const Problem problem = problem_of(DType::fp32, 13, 1, 1, 8, 8);
  ShardedRun run = run_of("ring", 2);
  std::atomic<int> listened = 0, left = 0;
  run.world = [&](int ranks, const auto& body) {
    run_ranks(ranks, [&](Rank rank, Transport& transport) {
      struct Counting final : test::OneMemory {
        Counting(Transport& over, std::atomic<int>& count_) : OneMemory(over), count(count_) {}
        void on_failure(std::function<void(const Error&)> listener) override {
          if (listener) ++count;
          OneMemory::on_failure(std::move(listener));
        }
        std::atomic<int>& count;
      } host_only(transport, listened);
      body(rank, host_only);
      if (host_only.listens) ++left;
    });
  };
  check(problem, run);
  CHECK(listened == 4);  // two ranks, two passes
  CHECK(left == 0);
}

TEST_CASE("clocks of host and GPU are compared again for every run", "[simt]") {
  const Problem problem = problem_of(DType::fp32, 12, 1, 1, 8, 8);
  constexpr int ranks = 2, tokens = 6;
  gpu = std::make_unique<simt::EmulatedDriver>(seed);
  std::barrier between(ranks, []() noexcept { simt::EmulatedDriver::set_clock_on(std::chrono::hours(1)); });
  std::array<Timeline, ranks> timelines;
  run_ranks(ranks, [&](Rank rank, Transport& transport) {
    test::OneMemory host_only(transport);
    const auto device = make_device("cuda", {});
    AttentionOptions options;
    options.schedule = "ring";
    Attention attention(problem, options, *device, host_only);
    std::vector<float> q(tokens * 8, 1.f), k = q, v = q, o = q, lse(tokens);
    const auto rows = [&](std::vector<float>& from) { return dense_view(from.data(), 1, tokens, 1, 8); };
    Bindings bindings;
    bindings.q = rows(q);
    bindings.k = rows(k);
    bindings.v = rows(v);
    bindings.o = rows(o);
    bindings.lse = statistics_view(reinterpret_cast<std::byte*>(lse.data()), DType::fp32, 1, 1, tokens);
    attention.forward(bindings);
    between.arrive_and_wait();
    timelines[static_cast<std::size_t>(rank)] = attention.forward(bindings);
  });
  for (const Timeline& timeline : timelines) {
    CHECK(timeline.spans.size() >= 2);
    for (const Span& span : timeline.spans) {
      CAPTURE(span.rank, span.number, name_of(span.lane));
      CHECK(span.end_s < 1800);
      CHECK(span.end_s > -1800);
    }
  }
}

namespace {

/// Two runs, between which everything differs that may.
void check_that_bits_repeat(const Problem& problem, int architecture) {
  CAPTURE(architecture);
  const Inputs inputs(problem, seed);
  gpu = std::make_unique<simt::EmulatedDriver>(1, architecture);
  const ExactResult first = run_sharded(inputs, run_of("zigzag-ring", 2));
  gpu = std::make_unique<simt::EmulatedDriver>(2, architecture);
  const ExactResult second = run_sharded(inputs, run_of("zigzag-ring", 2));
  CHECK((first.o == second.o && first.lse == second.lse));
  CHECK((first.dq == second.dq && first.dk == second.dk && first.dv == second.dv));
}

std::vector<kernels::cuda::TilePass> backward_passes(int architecture, GradientOrder order, int head_dim) {
  std::vector<kernels::cuda::TilePass> passes;
  const backends::cuda::TileWork work{{DType::bf16, 1, {}, head_dim, 128}, 512};
  for (const auto* kernel : backends::cuda::tile_kernels(Pass::backward, work, {{architecture}, order})) {
    passes.push_back(kernel->pass);
  }
  return passes;
}

}  // namespace

TEST_CASE("a run repeats bit for bit", "[simt]") {
  const Problem problem = problem_of(DType::bf16, 50, 2, 1, 16, 16);
  check_that_bits_repeat(problem, 80);
  gradient_order = GradientOrder::fixed;
  check_that_bits_repeat(problem, 90);
  gradient_order = GradientOrder::any;
}

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

TEST_CASE("all kernels among which there is a choice compute the same", "[simt]") {
  int compared = 0;
  for (const auto& [head_dim, value_dim] :
       {std::pair(64, 64), std::pair(128, 128), std::pair(192, 128), std::pair(256, 256)}) {
    const Problem problem = problem_of(DType::bf16, 210, head_dim == 64 ? 2 : 1, 1, head_dim, value_dim);
    gpu = std::make_unique<simt::EmulatedDriver>(seed, 90);
    for (const auto& [pass, order] :
         {std::pair(Pass::forward, GradientOrder::any), std::pair(Pass::backward, GradientOrder::any),
          std::pair(Pass::backward, GradientOrder::fixed)}) {
      gradient_order = order;
      std::map<std::string, int> used;
      for (const KernelVariant& each : make_device("cuda", {})->variants(problem, pass)) {
        CAPTURE(each.name, head_dim);
        used[each.part] += each.used ? 1 : 0;
        variant = each.name;
        check(problem, run_of("ring", 1), 90);
        variant.clear();
        ++compared;
      }
      for (const auto& [part, count] : used) {
        CAPTURE(part);
        CHECK(count == 1);
      }
    }
  }
  gradient_order = GradientOrder::any;
  CHECK(compared > 10);
  variant = "64x1";
  CHECK_THROWS_AS(make_device("cuda", {}), Error);
  variant.clear();
}

TEST_CASE("schedules run on Hopper's kernels", "[simt]") {
  Problem problem = problem_of(DType::bf16, 150, 2, 1, 16, 16);
  check(problem, run_of("zigzag-ring/burst:zigzag", 2), 90);
  problem.mask.left = 20;
  problem.mask.name = "window";
  ShardedRun run = run_of("striped-ring", 2);
  run.runs = 2;
  check(problem, run, 90);
  problem.dtype = DType::fp16;
  check(problem, run_of("mesh:2x1x2", 4), 90);
}

TEST_CASE("too little memory is named, with what plan predicts", "[simt]") {
  const Inputs inputs(problem_of(DType::bf16, 50, 2, 1, 16, 16), seed);
  gpu = std::make_unique<simt::EmulatedDriver>(seed, 80, 1000);
  try {
    run_sharded(inputs, run_of("ring", 2));
    FAIL("it fitted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::environment);
    const std::string what = error.what();
    CHECK(what.find("bytes that plan predicts for its buffers: emulated has no room") != std::string::npos);
  }
}

TEST_CASE("a launch that fails names rank and step, and ends all ranks", "[simt]") {
  const Inputs inputs(problem_of(DType::bf16, 50, 2, 1, 16, 16), seed);
  const std::pair<const char*, const char*> failures[] = {
      {"start attention", ", step "}, {"start packing tensors", ", inputs"}, {"start computing delta", ", inputs"}};
  for (const auto& [launch, place] : failures) {
    gpu = std::make_unique<simt::EmulatedDriver>(seed);
    gpu->fail_when(launch, 5);
    try {
      run_sharded(inputs, run_of("ring", 3));
      FAIL("nothing failed");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::environment);
      const std::string what = error.what();
      CAPTURE(what);
      CHECK(what.rfind("rank ", 0) == 0);
      CHECK(what.find(place) != std::string::npos);
      CHECK(what.find(std::string("could not ") + launch) != std::string::npos);
    }
  }
}

TEST_CASE("kernels are loaded before the first step", "[simt]") {
  gpu = std::make_unique<simt::EmulatedDriver>(seed);
  gpu->fail_when("load attention", 1);
  CHECK_THROWS_WITH(run_sharded(Inputs(problem_of(DType::bf16, 50, 2, 1, 16, 16), seed), run_of("ring", 1)),
                    contains_text("could not load attention"));
}

TEST_CASE("what no kernel computes is refused, naming what exists", "[simt]") {
  gpu = std::make_unique<simt::EmulatedDriver>(seed);
  const auto device = make_device("cuda", {});
  CHECK(device->why_not(problem_of(DType::fp16, 8, 1, 1, 256, 8), Pass::backward).empty());
  const std::string why = device->why_not(problem_of(DType::fp64, 8, 1, 1, 64, 64), Pass::forward);
  CHECK(why.find("no CUDA kernel for fp64") != std::string::npos);
  CHECK(why.find("bf16 128/128 from sm_80") != std::string::npos);
}

TEST_CASE("no kernel is chosen that asks for more shared memory than the GPU has", "[simt]") {
  gpu = std::make_unique<simt::EmulatedDriver>(seed, 89);
  gpu->limit_shared_memory(99 * 1024);
  const auto small = make_device("cuda", {});
  CHECK(small->why_not(problem_of(DType::bf16, 8, 1, 1, 64, 64), Pass::backward).empty());
  CHECK_THAT(small->why_not(problem_of(DType::bf16, 8, 1, 1, 256, 256), Pass::backward),
             contains_text("256/256 on sm_89 in the 101376 bytes of shared memory that a block may have"));
}

TEST_CASE("a caller's stream orders the device among the caller's own work", "[simt]") {
  const Problem problem = problem_of(DType::fp32, 20, 1, 1, 8, 8);
  const Inputs inputs(problem, seed);
  const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), {}, 1);
  gpu = std::make_unique<simt::EmulatedDriver>(seed);
  const auto stream = gpu->make_stream(backends::cuda::StreamPriority::normal);
  std::vector<std::shared_ptr<std::byte>> memory;
  const auto on_gpu = [&](const ConstTensorView& tensor) {
    TensorView view{nullptr, DType::fp32, MemorySpace::cuda, tensor.shape, tensor.strides};
    view.data = memory.emplace_back(gpu->allocate(20 * 8 * 4, MemorySpace::cuda)).get();
    return view;
  };
  const auto sent = [&](const ConstTensorView& tensor) {  // when the stream gets there
    const TensorView view = on_gpu(tensor);
    stream->copy(view.data, tensor.data, 20 * 8 * 4);
    return view;
  };
  run_ranks(1, [&](Rank, Transport& transport) {
    DeviceOptions device_options;
    device_options.stream = stream->handle();
    const auto device = backends::cuda::make_cuda_device(*gpu, device_options);
    AttentionOptions options;
    options.schedule = "ring";
    Attention attention(problem, options, *device, transport);
    Bindings bindings;
    bindings.q = sent(inputs.q());
    bindings.k = sent(inputs.k());
    bindings.v = sent(inputs.v());
    bindings.o = on_gpu(inputs.v());
    std::vector<float> lse(20), o(20 * 8);
    bindings.lse = statistics_view(reinterpret_cast<std::byte*>(lse.data()), DType::fp32, 1, 1, 20);
    attention.forward(bindings);
    std::memcpy(o.data(), bindings.o.data, o.size() * sizeof(float));
    for (std::size_t i = 0; i < o.size(); ++i) CHECK(o[i] == Approx(exact.o[i]).margin(1e-5));
    for (std::size_t i = 0; i < lse.size(); ++i) CHECK(lse[i] == Approx(exact.lse[i]).margin(1e-5));
  });
}
