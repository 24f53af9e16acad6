/// Schedules × masks × ranks, forward and backward, run by ranks that are threads and compared with float64.

#include <algorithm>
#include <cmath>

#include "catch.hpp"
#include "cli/tools/tolerance.hpp"
#include "distattn/registry.hpp"
#include "distattn/table.hpp"
#include "tests/support/problems.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/sharded.hpp"

using namespace distattn;
using test::Inputs;
using test::run_sharded;
using test::ShardedRun;

namespace {

constexpr std::uint64_t seed = 20;

Problem small_problem(std::int64_t seq_q, std::int64_t seq_kv, int heads, int kv_heads) {
  Problem problem;
  problem.seq_q = seq_q;
  problem.seq_kv = seq_kv;
  problem.heads = heads;
  problem.kv_heads = kv_heads;
  problem.head_dim = problem.value_dim = 8;
  return problem;
}

std::vector<Mask> masks(std::int64_t tokens) {
  std::vector<Mask> all{causal_mask(), full_mask(), prefix_mask(tokens, 17), block_causal_mask(tokens, 8)};
  const auto add = [&](const char* name, bool causal, std::int64_t left, std::int64_t right, std::int64_t sinks,
                       std::vector<std::int64_t> documents) {
    Mask mask = causal ? causal_mask() : full_mask();
    mask.name = name;
    mask.left = left;
    mask.right = right;
    mask.sinks = sinks;
    mask.documents = std::move(documents);
    all.push_back(mask);
  };
  add("window", true, 9, -1, 0, {});
  add("window and sinks", true, 5, -1, 3, {});
  add("both windows", false, 4, 7, 0, {});
  add("documents", true, -1, -1, 0, {0, 11, 12, 37, tokens});
  return all;
}

/// How many schedules were run; every one that applies must agree with float64.
int check_all(const Problem& problem, int ranks, ShardedRun run) {
  const Inputs inputs(problem, seed);
  const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
  run.ranks = ranks;
  run.options.passes = Passes::both;
  int count = 0;
  for (const std::string& name : all_schedule_names(problem, ranks)) {
    if (!std::holds_alternative<Recipe>(resolve_schedule(name, problem, ranks))) continue;
    run.options.schedule = name;
    CAPTURE(name, ranks, problem.mask.name, problem.heads, problem.kv_heads, name_of(problem.dtype), run.backend);
    CHECK(test::largest_error(run_sharded(inputs, run), exact) <= tolerance(problem, 4 * ranks));
    ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("every schedule agrees with float64 under every mask") {
  for (const int ranks : cases_to_run<int>({3, 1, 2, 4, 6, 8})) {
    for (const Mask& mask : masks(53)) {
      Problem problem = small_problem(53, 53, 4, 2);
      problem.mask = mask;
      CHECK(check_all(problem, ranks, {}) >= 5);
    }
  }
}

TEST_CASE("every schedule agrees with float64 for uneven shapes") {
  struct Shape {
    std::int64_t batch, seq_q, seq_kv;
    int heads, kv_heads, head_dim, value_dim;
  };
  for (const auto& [batch, seq_q, seq_kv, heads, kv_heads, head_dim, value_dim] :
       {Shape{2, 20, 53, 4, 4, 8, 16}, Shape{1, 53, 20, 6, 2, 16, 8}, Shape{3, 1, 40, 5, 5, 8, 8},
        Shape{1, 37, 37, 12, 4, 24, 8}, Shape{2, 3, 5, 4, 1, 8, 8}, Shape{1, 31, 31, 33, 11, 8, 8}}) {
    for (const int ranks : cases_to_run<int>({3, 1, 4, 8}, 4)) {
      Problem problem = small_problem(seq_q, seq_kv, heads, kv_heads);
      problem.batch = batch;
      problem.head_dim = head_dim;
      problem.value_dim = value_dim;
      CHECK(check_all(problem, ranks, {}) >= 1);
    }
  }
}

TEST_CASE("every schedule agrees with float64 in every element type") {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
    for (const DType wire : {DType::fp32, DType::bf16}) {
      Problem problem = small_problem(61, 61, 4, 2);
      problem.dtype = dtype;
      problem.wire = wire;
      CHECK(check_all(problem, 6, {}) >= 5);
    }
  }
}

TEST_CASE("host devices agree with float64 at every scale, and with no other scale") {
  for (const BackendInfo& info : list_backends()) {
    if (info.kind != BackendKind::device || !info.usable) continue;
    if (make_device(info.name, {})->space() != MemorySpace::host) continue;
    for (const double deviation : {0.5, 1.0, 4.0, 16.0, 64.0}) {
      Problem problem = small_problem(192, 192, 2, 1);
      problem.head_dim = problem.value_dim = 128;
      problem.scores.scale = deviation / std::sqrt(128.0);
      const Inputs inputs(problem, seed);
      ShardedRun run;
      run.backend = info.name;
      run.ranks = 2;
      run.options.schedule = "zigzag-ring";
      run.options.passes = Passes::both;
      const ExactResult results = run_sharded(inputs, run);
      const auto error_against = [&](double scale) {
        Problem other = problem;
        other.scores.scale = scale;
        return test::largest_error(results,
                                   exact_attention(other, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1));
      };
      CAPTURE(info.name, deviation);
      CHECK(error_against(problem.scores.scale) <= tolerance(problem, 8));
      CHECK(error_against(problem.scores.scale * 1.002) > 4 * tolerance(problem, 8));
    }
  }
}

TEST_CASE("every schedule agrees with float64 in every mode and over nodes") {
  for (const Mode mode : {Mode::overlapped, Mode::serial, Mode::gathered}) {
    for (const Routes routes : {Routes{0, 0}, Routes{2, 0}, Routes{4, 2}}) {
      ShardedRun run;
      run.options.mode = mode;
      run.options.node_size = routes.node_size;
      run.options.ahead = routes.ahead;
      run.runs = 2;
      CHECK(check_all(small_problem(64, 64, 8, 2), 8, run) >= 5);
    }
  }
}

TEST_CASE("sinks that go along trees agree with float64") {
  Problem problem = small_problem(97, 97, 4, 2);
  problem.mask.left = 3;
  problem.mask.sinks = 2;
  const Inputs inputs(problem, seed);
  const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
  ShardedRun run;
  run.ranks = 16;
  run.options.schedule = "ring";
  run.options.passes = Passes::both;
  for (const Mode mode : {Mode::overlapped, Mode::serial, Mode::gathered}) {
    for (const Routes routes : {Routes{0, 0}, Routes{1, 1}, Routes{2, 0}, Routes{3, 2}}) {
      run.options.mode = mode;
      run.options.node_size = routes.node_size;
      run.options.ahead = routes.ahead;
      CAPTURE(name_of(mode), routes.node_size, routes.ahead);
      CHECK(test::largest_error(run_sharded(inputs, run), exact) <= tolerance(problem, 4 * run.ranks));
    }
  }
}

TEST_CASE("random problems on random tables, routes and modes agree with float64") {
  INFO("seed " << test::seed());
  test::Random random(test::seed());
  for (int n = 0; n < (is_sanitized ? 40 : 300); ++n) {
    Problem problem = test::random_problem(random);
    problem.batch = random.between(1, 2);
    problem.value_dim = random.pick({8, 16});
    // Computed in fp64 and judged as fp32: where a mask leaves few pairs, gradients may all but cancel.
    const double most = tolerance(problem, 4 * 8);
    problem.dtype = DType::fp64;
    const int ranks = static_cast<int>(random.between(1, 8));
    const int node_size = static_cast<int>(random.between(0, 4));
    ShardedRun run;
    run.ranks = ranks;
    run.options.schedule = random.pick(test::recipes_for(problem, ranks, random)).name;
    run.options.mode = random.pick({Mode::overlapped, Mode::serial, Mode::gathered});
    run.options.node_size = node_size;
    run.options.ahead = 0 < node_size && node_size < ranks ? static_cast<int>(random.between(0, 3)) : 0;
    run.options.passes = Passes::both;
    const Inputs inputs(problem, seed);
    const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
    CAPTURE(n, run.options.schedule, ranks, node_size, problem.mask.name, problem.seq_q, problem.seq_kv);
    CHECK(test::largest_error(run_sharded(inputs, run), exact) <= most);
  }
}

TEST_CASE("random masks in placements agree with float64") {
  INFO("seed " << test::seed());
  test::Random random(test::seed());
  for (int n = 0; n < (is_sanitized ? 30 : 200); ++n) {
    Problem problem = test::random_problem(random);
    problem.seq_kv = problem.seq_q = random.between(1, 400);
    problem.mask = random.one_in(2) ? test::random_mask(random, problem.seq_kv) : causal_mask();
    if (random.one_in(2)) problem.mask = {.documents = test::random_documents(random, problem.seq_kv)};
    const double most = tolerance(problem, 4 * 8);
    problem.dtype = DType::fp64;
    ShardedRun run;
    run.ranks = static_cast<int>(random.between(1, 16));
    run.options.schedule = "placed";
    run.options.passes = Passes::both;
    run.options.machine = random.pick<std::string>({"dgx-h100x8", "ethernet-h100x64", "dgx-a100x2"});
    run.options.balance_tokens = random.pick({0.0, 0.005, 0.5});
    // A machine states rates for 16 bit; the same placement then computes in 64.
    Problem planned = problem;
    planned.dtype = DType::bf16;
    run.options.layout = or_refuse(decided(planned, run.ranks, run.options)).layout;
    const Inputs inputs(problem, seed);
    const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
    CAPTURE(n, run.ranks, problem.seq_q, problem.mask.documents.size());
    CHECK(test::largest_error(run_sharded(inputs, run), exact) <= most);
  }
}

TEST_CASE("a sequence that is dealt out in blocks agrees with float64 on every mesh") {
  struct Shape {
    std::int64_t seq_q, seq_kv;
  };
  int count = 0;
  for (const auto& [seq_q, seq_kv] : {Shape{83, 83}, Shape{1, 83}, Shape{13, 97}, Shape{59, 41}}) {
    for (const Mask& mask : masks(seq_kv)) {
      Problem problem = small_problem(seq_q, seq_kv, 6, 3);
      problem.mask = mask;
      const Inputs inputs(problem, seed);
      const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
      for (const int ranks : {1, 2, 3, 4, 6}) {
        for (const char* layout : {"striped:2", "striped:7", "striped:16"}) {
          for (const char* name : {"ring", "burst", "ulysses", "attention2d", "usp:2", "ring/burst", "auto"}) {
            if (std::string(name) == "usp:2" && ranks % 2 != 0) continue;
            if (++count % (is_sanitized ? 13 : 4) != 0) continue;  // other names and layouts for every mask
            ShardedRun run;
            run.ranks = ranks;
            run.options.schedule = name;
            run.options.passes = Passes::both;
            run.options.layout = layout;
            CAPTURE(seq_q, seq_kv, mask.name, ranks, layout, name);
            CHECK(test::largest_error(run_sharded(inputs, run), exact) <= tolerance(problem, 4 * ranks));
          }
        }
      }
    }
  }
}

TEST_CASE("meshes with head groups that share key heads, on every layout, agree with float64") {
  for (const char* name : {"mesh:3x2x1:zigzag", "mesh:3x1x2:block", "mesh:6x1x1:striped", "mesh:2x3x1:chunked",
                           "mesh:1x2x3:chunked", "mesh:3x1x2:striped:5", "ring/burst", "zigzag-ring/burst:zigzag"}) {
    Problem problem = small_problem(53, 53, 12, 4);
    const Inputs inputs(problem, seed);
    ShardedRun run;
    run.ranks = 6;
    run.options.schedule = name;
    run.options.passes = Passes::both;
    const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
    CAPTURE(name);
    CHECK(test::largest_error(run_sharded(inputs, run), exact) <= tolerance(problem, 4 * run.ranks));
  }
}
