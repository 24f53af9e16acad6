/// The NCCL transport between emulated GPUs: whole schedules, the order in which groups are started, and failures.

#include "backends/nccl/transport.hpp"

#include <dlfcn.h>

#include <array>
#include <barrier>
#include <chrono>
#include <thread>

#include "backends/cuda/device.hpp"
#include "catch.hpp"
#include "distattn/registry.hpp"
#include "distattn/subgroup.hpp"
#include "distattn/table.hpp"
#include "distattn/tolerance.hpp"
#include "nccl/rank_world.hpp"
#include "nccl/standin.hpp"
#include "simt/queue.hpp"
#include "tests/support/hand_made.hpp"
#include "tests/support/sharded.hpp"

namespace distattn {

/// Stands for the registry, which would want a real GPU.
std::unique_ptr<Device> make_device(std::string_view, const DeviceOptions& options) {
  return backends::cuda::make_cuda_device(test::own_gpu(), options);
}

}  // namespace distattn

namespace {

using namespace distattn;
using test::Inputs;
using test::run_sharded;
using test::ShardedRun;

constexpr std::uint64_t seed = 71;

/// NCCL for all messages, or another transport for the far ones.
constexpr std::optional<MemorySpace> far_transports[] = {std::nullopt, MemorySpace::host, MemorySpace::cuda};

ShardedRun run_of(const std::string& schedule, int ranks, const test::NcclWorld& world = {.seed = seed}) {
  ShardedRun run;
  run.options.schedule = schedule;
  run.options.backward = true;
  run.ranks = ranks;
  run.world = [world](int size, const test::RankBody& body) { test::run_nccl_ranks(size, body, world); };
  return run;
}

std::string failure_of(const ShardedRun& run) {
  try {
    Problem problem = test::uneven_problem();
    problem.mask = full_mask();  // every rank exchanges in every step
    run_sharded(Inputs(problem, seed), run);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

template <class Function>
Function* of_standin(const char* name) {
  void* const library = dlopen(DISTATTN_NCCL_STANDIN, RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(library != nullptr);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

/// Rank 0 sends to both others in step 0; rank 1, once it has that, waits for rank 0's step 1.
RankProgram two_sends_and_one(const Outline& outline, Rank rank) {
  test::ProgramWriter writer(outline);
  const BufferId buffer = writer.buffer(Value{ValueKind::query, 0, SegmentId{0}, -1});
  if (rank == 0) {
    writer.step(Lane::near, 0, {Send{buffer, 1}, Send{buffer, 2}});
    writer.step(Lane::near, 1, {Send{buffer, 1}});
  } else {
    for (int step = 0; step < 3 - rank; ++step) writer.step(Lane::near, step, {Recv{buffer, 0}});
  }
  return writer.take();
}

void check_every_schedule(const test::NcclWorld& world) {
  const Problem problem = test::uneven_problem();
  const Inputs inputs(problem, seed);
  const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
  for (const std::string& name : all_schedule_names(problem, 4)) {
    if (!std::holds_alternative<Recipe>(resolve_schedule(name, problem, 4))) continue;
    for (const int node_size : {0, 2}) {
      ShardedRun run = run_of(name, 4, world);
      run.options.routes = {node_size, node_size / 2};
      CAPTURE(name, node_size);
      CHECK(test::largest_error(run_sharded(inputs, run), exact) <= tolerance(problem, 16));
    }
  }
}

}  // namespace

TEST_CASE("every schedule runs over NCCL, with near and far lanes started in one order") {
  check_every_schedule({.seed = seed});
}

TEST_CASE("every schedule runs over an NCCL that keeps no order between lanes") {
  CHECK(test::standin().keeps_order == (NCCL_VERSION_CODE >= NCCL_VERSION(2, 26, 0)));
  const auto keep_order = of_standin<decltype(standin_keep_order)>("standin_keep_order");
  keep_order(false);
  check_every_schedule({.seed = seed, .keeps_order = false});
  keep_order(true);
}

TEST_CASE("every schedule runs with far messages through host memory") {
  check_every_schedule({.seed = seed, .far = MemorySpace::host});
}

TEST_CASE("every schedule runs with far messages of another transport between GPUs") {
  check_every_schedule({.seed = seed, .far = MemorySpace::cuda});
}

TEST_CASE("host memory that far messages pass through is pinned before the first step, and only for them") {
  const Problem problem = test::uneven_problem();
  struct Case {
    int node_size;
    MemorySpace far;
    bool pins;
  };
  for (const auto& [node_size, far, pins] :
       {Case{1, MemorySpace::host, true}, Case{2, MemorySpace::host, false}, Case{1, MemorySpace::cuda, false}}) {
    AttentionOptions options;
    options.schedule = "ring";
    options.routes.node_size = node_size;
    std::array<std::size_t, 2> pinned{}, needed{};
    const auto prepare = [&](Rank rank, Transport& transport) {
      const auto device = make_device("cuda", {});
      const std::size_t before = test::own_gpu().pinned_bytes();
      const Attention attention(problem, options, *device, transport);
      pinned[static_cast<std::size_t>(rank)] = test::own_gpu().pinned_bytes() - before;
      needed[static_cast<std::size_t>(rank)] = slots_bytes(attention.program(Pass::forward));
    };
    test::run_nccl_ranks(2, prepare, {.seed = seed, .far = far});
    CAPTURE(node_size, far == MemorySpace::cuda);
    CHECK(needed[0] > 0);
    CHECK(pinned == (pins ? needed : std::array<std::size_t, 2>{}));
  }
}

TEST_CASE("rows that gather do so in one collective each, everything else is sent") {
  test::standin();
  const auto gathers = of_standin<decltype(standin_gathers)>("standin_gathers");
  struct Case {
    const char* schedule;
    int ranks, node_size, members, gathers;  // of one rank, in both passes
    bool causal;
  };
  for (const Case& one : {Case{"allgather", 4, 0, 4, 2 * 2, false}, Case{"allgather", 4, 0, 4, 2, true},
                          Case{"attention2d:2x3", 6, 0, 3, 2, true}, Case{"attention2d:3x3", 9, 0, 3, 2 * 2, false},
                          Case{"zigzag-ring", 6, 3, 3, 2 * 2, false}, Case{"mesh:2x2x1", 4, 0, 2, 0, false}}) {
    Problem problem = test::uneven_problem();
    problem.seq_q = problem.seq_kv = 72;
    if (!one.causal) problem.mask = full_mask();
    const Inputs inputs(problem, seed);
    const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
    ShardedRun run = run_of(one.schedule, one.ranks);
    run.options.own_mode = false;
    run.options.mode = Mode::gathered;
    run.options.routes.node_size = one.node_size;
    run.runs = 2;
    const int before = gathers(one.members);
    CAPTURE(one.schedule, one.ranks, one.causal);
    CHECK(test::largest_error(run_sharded(inputs, run), exact) <= tolerance(problem, 72));
    CHECK(gathers(one.members) - before == run.runs * one.ranks * one.gathers);
  }
}

TEST_CASE("a group of ranks gathers over NCCL, whatever the whole calls them") {
  const Problem problem = test::uneven_problem();
  const Inputs inputs(problem, seed);
  const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
  const auto gathers = of_standin<decltype(standin_gathers)>("standin_gathers");
  const int before = gathers(3);
  ShardedRun run = run_of("allgather", 3);
  run.runs = 2;
  run.world = [&](int, const test::RankBody& body) {
    const test::RankBody grouped = [&](Rank rank, Transport& whole) {
      if (rank == 1) return;
      Subgroup group(whole, {3, 0, 2});
      body(group.rank(), group);
    };
    test::run_nccl_ranks(4, grouped, {.seed = seed});
  };
  CHECK(test::largest_error(run_sharded(inputs, run), exact) <= tolerance(problem, 13));
  CHECK(gathers(3) > before);
}

TEST_CASE("a row that cannot gather, or cannot be made, ends all ranks") {
  test::standin();
  Problem problem = test::uneven_problem();
  problem.mask = full_mask();
  ShardedRun run = run_of("attention2d:2x3", 6);
  run.options.own_mode = false;
  run.options.mode = Mode::gathered;
  const auto failure = [&] {
    try {
      run_sharded(Inputs(problem, seed), run);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  const auto fail = of_standin<decltype(standin_fail)>("standin_fail");
  for (const int group : {1, 2, 3}) {
    fail(1, group, false);
    CAPTURE(group);
    CHECK(failure().find("network error") != std::string::npos);
  }
  fail(0, 0, false);
  CHECK(failure() == "");

  const auto refuse = of_standin<decltype(standin_refuse)>("standin_refuse");
  std::barrier together(run.ranks);
  run.world = [&](int size, const test::RankBody& body) {
    const test::RankBody refused = [&](Rank rank, Transport& transport) {
      together.arrive_and_wait();  // the communicators of all ranks are made
      if (rank == 0) refuse(1);
      together.arrive_and_wait();
      body(rank, transport);
    };
    test::run_nccl_ranks(size, refused, {.seed = seed});
  };
  const std::string what = failure();
  refuse(-1);
  CAPTURE(what);
  CHECK(what.find("system error") != std::string::npos);
  CHECK(what.find("step 0") != std::string::npos);
}

TEST_CASE("a group of ranks attends over NCCL") {
  const Problem problem = test::uneven_problem();
  const Inputs inputs(problem, seed);
  const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
  const std::vector<Rank> members = {3, 0, 4, 1};
  for (const auto& far : far_transports) {
    ShardedRun run = run_of("mesh:2x2x1:zigzag", 4);
    run.options.routes = {2, 1};
    run.runs = 2;
    run.world = [&](int, const test::RankBody& body) {
      const test::RankBody grouped = [&](Rank rank, Transport& whole) {
        if (rank == 2) return;
        Subgroup group(whole, members);
        body(group.rank(), group);
      };
      test::run_nccl_ranks(5, grouped, {.seed = seed, .far = far});
    };
    CAPTURE(far.has_value(), far == MemorySpace::cuda);
    CHECK(test::largest_error(run_sharded(inputs, run), exact) <= tolerance(problem, 16));
  }
}

TEST_CASE("communicators are ended in order where all is well, and aborted where not") {
  test::standin();
  const auto aborts = of_standin<decltype(standin_aborts)>("standin_aborts");
  const int before = aborts();
  CHECK(failure_of(run_of("ring", 3)) == "");
  CHECK(aborts() == before);
  of_standin<decltype(standin_fail)>("standin_fail")(1, 2, false);
  CHECK(failure_of(run_of("ring", 3)) != "");
  CHECK(aborts() > before);
}

TEST_CASE("passes follow each other") {
  const Problem problem = test::uneven_problem();
  const Inputs inputs(problem, seed);
  const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
  ShardedRun run = run_of("zigzag-ring", 3);
  run.runs = 3;
  CHECK(test::largest_error(run_sharded(inputs, run), exact) <= tolerance(problem, 12));
}

TEST_CASE("a link that breaks ends all ranks") {
  test::standin();
  const auto fail = of_standin<decltype(standin_fail)>("standin_fail");
  for (const int group : {1, 4}) {
    fail(1, group, false);
    const std::string what = failure_of(run_of("ring", 3));
    CAPTURE(what);
    CHECK(what.find("rank ") != what.npos);
    CHECK(what.find("step ") != what.npos);
    CHECK(what.find("network error") != what.npos);
  }
  fail(0, 0, false);
  CHECK(failure_of(run_of("ring", 3)) == "");
}

TEST_CASE("a rank that cannot make a communicator ends all ranks") {
  test::standin();
  const auto refuse = of_standin<decltype(standin_refuse)>("standin_refuse");
  for (const auto& far : far_transports) {
    refuse(1);
    const std::string what = failure_of(run_of("ring", 3, {.seed = seed, .far = far}));
    refuse(-1);
    CAPTURE(what);
    CHECK(what.find("system error") != what.npos);
    CHECK(failure_of(run_of("ring", 3, {.seed = seed, .far = far})) == "");
  }
}

TEST_CASE("a rank that does not come is a timeout that names it") {
  test::standin();
  const auto fail = of_standin<decltype(standin_fail)>("standin_fail");
  fail(2, 2, true);
  const std::string what = failure_of(run_of("ring", 3, {.seed = seed, .missing = 2}));
  fail(0, 0, false);
  CHECK(what.find("rank 2 made no progress") != what.npos);
}

TEST_CASE("ranks between which nothing moves are a timeout, though all of them live") {
  test::standin();
  const auto fail = of_standin<decltype(standin_fail)>("standin_fail");
  fail(2, 2, true);
  const std::string what = failure_of(run_of("ring", 3, {.seed = seed, .timeout_s = 1.0}));
  fail(0, 0, false);
  CAPTURE(what);
  CHECK(what.find("made no progress for 1 s") != what.npos);
}

TEST_CASE("a row whose members do not hear of it is a timeout") {
  test::standin();
  const auto fail = of_standin<decltype(standin_fail)>("standin_fail");
  ShardedRun run = run_of("attention2d:2x3", 6, {.seed = seed, .timeout_s = 1.0});
  run.options.own_mode = false;
  run.options.mode = Mode::gathered;
  fail(0, 1, true);
  const std::string what = failure_of(run);
  fail(0, 0, false);
  CAPTURE(what);
  CHECK(what.find("made no progress for 1 s") != what.npos);
}

TEST_CASE("a communicator that waits in its end for a rank that hangs holds nobody up") {
  test::standin();
  const auto hold_ends = of_standin<decltype(standin_hold_ends)>("standin_hold_ends");
  hold_ends(true);
  CHECK(failure_of(run_of("ring", 3)) == "");
  of_standin<decltype(standin_fail)>("standin_fail")(1, 2, false);
  const std::string what = failure_of(run_of("ring", 3));
  hold_ends(false);
  CHECK(what.find("network error") != what.npos);
}

TEST_CASE("a rank whose GPU computes for longer than the timeout is waited for") {
  const auto body = [](Rank rank, Transport& transport) {
    const Outline outline = test::block_outline(3, 4);
    const RankProgram program = two_sends_and_one(outline, rank);
    BufferTable buffers(outline, program, rank, MemorySpace::cuda,
                        test::own_gpu().allocate(slots_bytes(program) + 64, MemorySpace::cuda));
    const auto stream = test::own_gpu().make_stream(backends::cuda::StreamPriority::normal);
    if (rank == 2) {
      const auto compute = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1600)); };
      static_cast<simt::Queue*>(stream->handle())->submit(compute);
    }
    const Event computed(std::make_shared<backends::cuda::GpuEvent>(
        stream->mark(), std::make_shared<backends::cuda::Ending>(), nullptr, "a kernel"));
    std::vector<Event> exchanges;
    for (const Step& step : program.steps) exchanges.push_back(transport.submit(step, buffers, {&computed, 1}));
    transport.resting();
    for (const Event& exchange : exchanges) exchange.wait();
  };
  CHECK_NOTHROW(test::run_nccl_ranks(3, body, {.seed = seed, .timeout_s = 0.5}));
}

TEST_CASE("both lanes end where both wait for another rank") {
  test::standin();
  const auto fail = of_standin<decltype(standin_fail)>("standin_fail");
  for (const int group : {1, 2, 3, 4}) {
    ShardedRun run = run_of("ring", 4);
    run.options.routes = {2, 1};
    fail(1, group, false);
    CAPTURE(group);
    CHECK(failure_of(run).find("network error") != std::string::npos);
  }
  fail(0, 0, false);
}

TEST_CASE("two ranks on one GPU are refused") {
  const std::string what = failure_of(run_of("ring", 2, {.seed = seed, .one_gpu = true}));
  CHECK(what.find("ranks 0 and 1 would share a GPU") != what.npos);
  CHECK(what.find("take transport ucx") != what.npos);
}

TEST_CASE("a library that is missing, or is not NCCL, is named") {
  const auto why = [](const std::string& name) -> std::string {
    try {
      backends::nccl::load_library(name);
      return "";
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::environment);
      return error.what();
    }
  };
  CHECK(why("libnccl-of-nobody.so.2").find("libnccl-of-nobody.so.2") != std::string::npos);
  CHECK(why("libc.so.6").find("ncclGetVersion") != std::string::npos);
}
