/// The CUDA device as a whole, on an emulated GPU: schedules run by ranks that are threads, compared with float64.

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>

#include "backends/cuda/device.hpp"
#include "distattn/device_tensors.hpp"
#include "distattn/table.hpp"
#include "simt/device_case.hpp"
#include "tests/support/one_memory.hpp"
#include "tests/support/sanitized.hpp"

namespace {

using namespace distattn;
using namespace simt;
using test::Inputs;
using test::run_sharded;
using test::ShardedRun;

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
  for (const std::string& name : cases_to_run(all_schedule_names(problem, 4))) {
    if (!std::holds_alternative<Recipe>(resolve_schedule(name, problem, 4))) continue;
    ShardedRun run = run_of(name, 4);
    run.runs = 2;
    run.options.node_size = 2;
    run.options.ahead = 1;
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
  gpu = std::make_unique<simt::EmulatedDriver>(device_seed);
  std::barrier between(ranks, []() noexcept { simt::EmulatedDriver::set_clock_on(std::chrono::hours(1)); });
  std::array<Timeline, ranks> timelines;
  run_ranks(ranks, [&](Rank rank, Transport& transport) {
    test::OneMemory host_only(transport);
    const auto device = make_device("cuda", {});
    ScheduleRequest options;
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
  const Inputs inputs(problem, device_seed);
  gpu = std::make_unique<simt::EmulatedDriver>(1, architecture);
  const ExactResult first = run_sharded(inputs, run_of("zigzag-ring", 2));
  gpu = std::make_unique<simt::EmulatedDriver>(2, architecture);
  const ExactResult second = run_sharded(inputs, run_of("zigzag-ring", 2));
  CHECK((first.o == second.o && first.lse == second.lse));
  CHECK((first.dq == second.dq && first.dk == second.dk && first.dv == second.dv));
}

}  // namespace

TEST_CASE("a run repeats bit for bit", "[simt][again]") {
  const Problem problem = problem_of(DType::bf16, 50, 2, 1, 16, 16);
  check_that_bits_repeat(problem, 80);
  asked.gradient_order = GradientOrder::fixed;
  check_that_bits_repeat(problem, 90);
  asked.gradient_order = GradientOrder::any;
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
  const Inputs inputs(problem_of(DType::bf16, 50, 2, 1, 16, 16), device_seed);
  gpu = std::make_unique<simt::EmulatedDriver>(device_seed, 80, 1000);
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
  const Inputs inputs(problem_of(DType::bf16, 50, 2, 1, 16, 16), device_seed);
  const std::pair<const char*, const char*> failures[] = {
      {"start attention", ", step "}, {"start packing tensors", ", inputs"}, {"start computing delta", ", inputs"}};
  for (const auto& [launch, place] : failures) {
    gpu = std::make_unique<simt::EmulatedDriver>(device_seed);
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

TEST_CASE("tensors rest on the device from call to call, and are fetched as they lie", "[simt]") {
  Problem problem = problem_of(DType::fp32, 20, 1, 1, 8, 8);
  const Inputs inputs(problem, device_seed);
  const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
  gpu = std::make_unique<EmulatedDriver>(device_seed);
  run_ranks(1, [&](Rank, Transport& transport) {
    const auto device = make_device("cuda", {});
    ScheduleRequest options;
    options.schedule = "ring";
    options.passes = Passes::both;
    Attention attention(problem, options, *device, transport);
    std::vector<float> o(2 * 20 * 8, 7.f), lse(20), dq(20 * 8), dk(20 * 8), dv(20 * 8);
    const auto rows = [](std::vector<float>& values) { return dense_view(values.data(), 1, 20, 1, 8); };
    Bindings bindings{inputs.q(), inputs.k(), inputs.v()};
    bindings.o = rows(o);
    bindings.o.data +=
        sizeof(float) * 8 * (2 * 20 - 1);  // the last token first, and every other row is somebody else's
    bindings.o.strides[1] = -2 * 8;
    bindings.lse = statistics_view(lse.data(), 1, 1, 20);
    bindings.d_o = inputs.d_o();
    bindings.dq = rows(dq);
    bindings.dk = rows(dk);
    bindings.dv = rows(dv);
    DeviceTensors there(*device, bindings);
    CHECK(there.bindings().q.space == MemorySpace::cuda);
    CHECK(there.bindings().o.space == MemorySpace::cuda);
    for (int call = 0; call < 2; ++call) {
      attention.forward(there.bindings());
      attention.backward(there.bindings());
      CHECK(o == std::vector<float>(2 * 20 * 8, 7.f));
      CHECK(dv == std::vector<float>(20 * 8));
    }
    there.fetch();
    for (std::size_t i = 0; i < 20 * 8; ++i) {
      const std::size_t token = i / 8, row = 2 * 19 + 1 - 2 * token;
      CHECK(o[row * 8 + i % 8] == Approx(exact.o[i]).margin(1e-5));
      CHECK(o[(row - 1) * 8 + i % 8] == 7.f);
      CHECK(dq[i] == Approx(exact.dq[i]).margin(1e-5));
      CHECK(dv[i] == Approx(exact.dv[i]).margin(1e-5));
    }
  });
}

TEST_CASE("tensors that a device can reach stay where they are", "[simt]") {
  const Problem problem = problem_of(DType::fp32, 20, 1, 1, 8, 8);
  const Inputs inputs(problem, device_seed);
  gpu = std::make_unique<EmulatedDriver>(device_seed, 80, 10000);
  const auto device = make_device("cuda", {});
  Bindings bindings{inputs.q(), inputs.k(), inputs.v()};
  const DeviceTensors first(*device, bindings);
  const DeviceTensors second(*device, first.bindings());
  CHECK(second.bindings().q.data == first.bindings().q.data);
  bindings.q = dense_view(inputs.q().data, DType::fp32, 1, 20, 1, 800);
  CHECK_THROWS_WITH(DeviceTensors(*device, bindings), contains_text("emulated has no room for 64000 bytes"));
}

TEST_CASE("a caller's stream orders the device among the caller's own work", "[simt]") {
  const Problem problem = problem_of(DType::fp32, 20, 1, 1, 8, 8);
  const Inputs inputs(problem, device_seed);
  const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), {}, 1);
  gpu = std::make_unique<simt::EmulatedDriver>(device_seed);
  const auto stream = gpu->make_stream(backends::StreamPriority::normal);
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
    device_options.gpu.stream = stream->handle();
    const auto device = backends::cuda::make_cuda_device(*gpu, device_options);
    ScheduleRequest options;
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
