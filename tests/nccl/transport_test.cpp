/// The NCCL transport between emulated GPUs: whole schedules, the order in which groups are started, and gathers.

#include "backends/nccl/transport.hpp"

#include <array>
#include <barrier>

#include "cli/tools/tolerance.hpp"
#include "distattn/registry.hpp"
#include "distattn/subgroup.hpp"
#include "distattn/table.hpp"
#include "nccl/runs.hpp"
#include "nccl/standin.hpp"
#include "tests/support/hand_made.hpp"

namespace {

using namespace distattn;
using test::failure_of;
using test::far_transports;
using test::Inputs;
using test::of_standin;
using test::run_of;
using test::run_sharded;
using test::seed;
using test::ShardedRun;

void check_every_schedule(const test::NcclWorld& world) {
  const Problem problem = test::uneven_problem();
  const Inputs inputs(problem, seed);
  const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
  for (const std::string& name : all_schedule_names(problem, 4)) {
    if (!std::holds_alternative<Recipe>(resolve_schedule(name, problem, 4))) continue;
    for (const int node_size : {0, 2}) {
      ShardedRun run = run_of(name, 4, world);
      run.options.node_size = node_size;
      run.options.ahead = node_size / 2;
      CAPTURE(name, node_size);
      CHECK(test::largest_error(run_sharded(inputs, run), exact) <= tolerance(problem, 16));
    }
  }
}

}  // namespace

TEST_CASE("every schedule runs over NCCL, with near and far lanes started in one order") {
  check_every_schedule({.seed = seed});
}

TEST_CASE("queued passes run over NCCL") {
  const Problem problem = test::uneven_problem();
  const Inputs inputs(problem, seed);
  const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
  ShardedRun run = run_of("zigzag-ring/burst:zigzag", 3);
  run.calls = test::Calls::queued;
  run.runs = 3;
  CHECK(test::largest_error(run_sharded(inputs, run), exact) <= tolerance(problem, 16));
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
    ScheduleRequest options;
    options.schedule = "ring";
    options.node_size = node_size;
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
    run.options.mode = Mode::gathered;
    run.options.node_size = one.node_size;
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
    run.options.node_size = 2;
    run.options.ahead = 1;
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

TEST_CASE("passes follow each other") {
  const Problem problem = test::uneven_problem();
  const Inputs inputs(problem, seed);
  const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
  ShardedRun run = run_of("zigzag-ring", 3);
  run.runs = 3;
  CHECK(test::largest_error(run_sharded(inputs, run), exact) <= tolerance(problem, 12));
}
