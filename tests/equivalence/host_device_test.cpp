/// What a host device adds to its kernels: staging, batches, errors, and no allocation after the first run.

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "backends/host/device.hpp"
#include "catch.hpp"
#include "distattn/device_tensors.hpp"
#include "distattn/inproc.hpp"
#include "distattn/registry.hpp"
#include "distattn/subgroup.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/sharded.hpp"

using namespace distattn;

namespace {

Problem tiny_problem() {
  Problem problem;
  problem.seq_q = problem.seq_kv = 40;
  problem.heads = 4;
  problem.kv_heads = 2;
  problem.head_dim = problem.value_dim = 8;
  problem.mask = causal_mask();
  return problem;
}

/// A rank's tensors, all zero, for tests that look at no number.
struct HostTensors {
  HostTensors(const Attention& attention, const Problem& problem) {
    const auto queries = static_cast<std::int64_t>(attention.query_positions().size());
    const auto keys = static_cast<std::int64_t>(attention.key_positions().size());
    bindings.q = tensor(queries, problem.heads, problem.head_dim);
    bindings.k = tensor(keys, problem.kv_heads, problem.head_dim);
    bindings.v = tensor(keys, problem.kv_heads, problem.value_dim);
    bindings.o = tensor(queries, problem.heads, problem.value_dim);
    bindings.d_o = tensor(queries, problem.heads, problem.value_dim);
    bindings.lse = tensor(queries, problem.heads, 1);
    bindings.dq = tensor(queries, problem.heads, problem.head_dim);
    bindings.dk = tensor(keys, problem.kv_heads, problem.head_dim);
    bindings.dv = tensor(keys, problem.kv_heads, problem.value_dim);
  }
  TensorView tensor(std::int64_t tokens, int heads, int dim) {
    auto& data = memory.emplace_back(static_cast<std::size_t>(tokens * heads * dim));
    return dense_view(reinterpret_cast<std::byte*>(data.data()), DType::fp32, 1, tokens, heads, dim);
  }
  std::vector<std::vector<float>> memory;
  Bindings bindings;
};

void failing_merge(std::span<const kernels::MergeArgs>, kernels::Team&, const kernels::StopFlag&) {
  throw std::runtime_error("the merge kernel met a bad number");
}

/// Attends until it is told to stop.
void endless_attend(std::span<const kernels::AttendArgs>, kernels::Team&, const kernels::StopFlag& stop) {
  while (!stop) std::this_thread::yield();
}

}  // namespace

TEST_CASE("a host device computes on tensors where they are, and has memory for more") {
  const auto device = make_device("reference", {});
  std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8}, back(8);
  Bindings bindings;
  bindings.q = dense_view(values.data(), 1, 1, 1, 8);
  bindings.k = bindings.q;
  bindings.k.space = MemorySpace::cuda;  // which the run refuses, with the reason
  bindings.o = dense_view(back.data(), 1, 1, 1, 8);
  DeviceTensors there(*device, bindings);
  CHECK(there.bindings().q.data == bindings.q.data);
  CHECK(there.bindings().k.data == bindings.k.data);
  CHECK(there.bindings().o.data == bindings.o.data);
  there.fetch();
  CHECK(back == std::vector<float>(8));
  const auto memory = device->allocate_tensor(8 * sizeof(float));
  CHECK(reinterpret_cast<std::uintptr_t>(memory.get()) % 64 == 0);
  device->copy(memory.get(), bindings.q.data, 8 * sizeof(float));
  device->copy(bindings.o.data, memory.get(), 8 * sizeof(float));
  CHECK(back == values);
}

TEST_CASE("who listens only after another rank has failed hears of it at once") {
  std::atomic<bool> failed = false, told[2] = {false, false};
  run_ranks(2, [&](Rank rank, Transport& transport) {
    if (rank == 0) {
      transport.abort(Error(ErrorKind::peer, "gave up"));
      failed = true;
    }
    while (!failed) std::this_thread::yield();
    transport.on_failure([&](const Error&) { told[rank] = true; });
    transport.on_failure(nullptr);
  });
  CHECK_FALSE(told[0]);  // its own failure
  CHECK(told[1]);
}

TEST_CASE("a host device has no variants and refuses their names") {
  CHECK(backends::make_host_device(kernels::reference_kernels(), {})->variants(tiny_problem(), Pass::forward).empty());
  try {
    backends::make_host_device(kernels::reference_kernels(), {.gpu = {.variant = "128x96"}});
    FAIL("a variant that does not exist was ignored");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    CHECK(std::string(error.what()).find("128x96") != std::string::npos);
  }
}

TEST_CASE("the second run of device, transport, group and executor allocates nothing") {
  ScheduleRequest options;
  options.schedule = "mesh:2x2x1:zigzag";
  options.passes = Passes::both;
  const Problem problem = tiny_problem();
  const auto plan = std::make_shared<const AttentionPlan>(problem, 4, options);
  std::atomic<int> ready{0}, finished{0};
  std::atomic<std::size_t> before{0}, after{0};
  run_ranks(4, [&](Rank rank, Transport& transport) {
    const auto device = backends::make_host_device(kernels::reference_kernels(), {1, 4});
    Subgroup group(transport, {2, 0, 3, 1});
    Attention attention(plan, *device, group);
    HostTensors tensors(attention, problem);
    const auto both = [&] {
      attention.forward(tensors.bindings);
      attention.backward(tensors.bindings);
    };
    both();
    // Threads count into one counter, so that none may still be in its first run, or already taking itself apart.
    ++ready;
    while (ready < 4) std::this_thread::yield();
    if (rank == 0) before = test::allocations.load();
    ++finished;
    while (finished < 4) std::this_thread::yield();
    both();
    ++finished;
    while (finished < 8) std::this_thread::yield();
    if (rank == 0) after = test::allocations.load();
    ++finished;
    while (finished < 12) std::this_thread::yield();
  });
  CHECK(after == before);
}

TEST_CASE("an exception in a kernel ends all ranks and names rank and step") {
  for (const char* schedule : {"balanced", "mesh:1x2x2:zigzag"}) {
    ScheduleRequest options;
    options.schedule = schedule;
    const Problem problem = tiny_problem();
    kernels::HostKernels broken = kernels::reference_kernels();
    broken.merge = failing_merge;
    std::string message;
    try {
      run_ranks(4, [&](Rank rank, Transport& transport) {
        const auto device = backends::make_host_device(rank == 3 ? broken : kernels::reference_kernels(), {1, 4});
        Attention attention(problem, options, *device, transport);
        attention.forward(HostTensors(attention, problem).bindings);
      });
    } catch (const Error& error) {
      message = error.what();
      CHECK(error.kind() == ErrorKind::environment);
    }
    CAPTURE(message);
    CHECK(message.find("rank 3, step ") == 0);
    CHECK(message.find("the merge kernel met a bad number") != message.npos);
  }
}

TEST_CASE("a failing rank stops the kernels of the others") {
  ScheduleRequest options;
  options.schedule = "ring";
  const Problem problem = tiny_problem();
  kernels::HostKernels endless = kernels::reference_kernels();
  endless.attend = endless_attend;
  std::string message;
  try {
    run_ranks(2, [&](Rank rank, Transport& transport) {
      const auto device = backends::make_host_device(endless, {1, 2});
      Attention attention(problem, options, *device, transport);
      HostTensors tensors(attention, problem);
      if (rank == 1) tensors.bindings.k.shape[1] = 3;
      attention.forward(tensors.bindings);
    });
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message.find("rank 1's k is 1x3x2x8") == 0);
}

TEST_CASE("tensors in any order and type of elements are converted on the way") {
  Problem problem = tiny_problem();
  problem.dtype = DType::bf16;
  ScheduleRequest options;
  options.schedule = "zigzag-ring";
  options.passes = Passes::both;
  const test::Inputs inputs(problem, 11);
  test::ShardedRun run;
  run.options = options;
  run.ranks = 3;
  const ExactResult dense = run_sharded(inputs, run);
  for (const auto order : {test::MemoryOrder::heads_last, test::MemoryOrder::backwards}) {
    run.order = order;
    const ExactResult strided = run_sharded(inputs, run);
    CHECK(dense.o == strided.o);
    CHECK(dense.dq == strided.dq);
    CHECK(dense.dk == strided.dk);
  }
}

TEST_CASE("nothing to run, no plan and slopes of no heads are refused, and a meeting that cannot be held ends") {
  CHECK_THROWS_WITH(run_ranks(2, std::function<void(Rank, Transport&)>()), contains_text("no body is given"));
  CHECK_THROWS_WITH(standard_alibi_slopes(0), contains_text("slopes of 0 heads"));
  run_ranks(1, [](Rank, Transport& transport) {
    const auto device = make_device("reference", {1, 1});
    CHECK_THROWS_WITH(Attention(std::shared_ptr<const AttentionPlan>(), *device, transport),
                      contains_text("no plan is given"));
  });
  const auto meet = [](Rank rank, Transport&, Bootstrap& bootstrap) {
    bootstrap.barrier();
    if (rank != 1) bootstrap.barrier();
  };
  CHECK_THROWS_WITH(run_ranks(3, meet), contains_text("rank 1 has ended its part of the run"));
}
