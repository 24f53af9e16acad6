/// Keys and values in one buffer, as MLA with absorbed projections has them: what is computed, and what is sent.

#include "catch.hpp"
#include "cli/tools/tolerance.hpp"
#include "distattn/error.hpp"
#include "distattn/registry.hpp"
#include "distattn/table.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/sharded.hpp"

using namespace distattn;
using test::Inputs;
using test::run_sharded;
using test::ShardedRun;

namespace {

constexpr std::uint64_t shared_seed = 23;

Problem latent_problem() {
  Problem problem;
  problem.batch = 2;
  problem.seq_q = problem.seq_kv = 53;
  problem.heads = 5;
  problem.kv_heads = 1;
  problem.head_dim = 40;
  problem.value_dim = 24;
  problem.shared_kv = true;
  problem.mask = causal_mask();
  return problem;
}

/// Each feature beside it, and several key heads, so that head groups share some.
Problem everything() {
  Problem problem = latent_problem();
  problem.heads = 6;
  problem.kv_heads = 2;
  problem.value_dim = 40;
  problem.mask.left = 19;
  problem.mask.sinks = 2;
  problem.mask.documents = {0, 23, 24, 53};
  problem.scores = {.scale = 0, .softcap = 1.5, .sink_logits = true};
  return problem;
}

/// Every schedule on every device of the host that computes this.
int check_shared(const Problem& problem, int ranks, double most) {
  const Inputs inputs(problem, shared_seed);
  const ExactResult exact = test::exact_of(inputs);
  int count = 0;
  for (const BackendInfo& backend : list_backends()) {
    if (backend.kind != BackendKind::device || !backend.usable) continue;
    const auto device = make_device(backend.name, {});
    if (device->space() != MemorySpace::host || !device->why_not(problem, Pass::backward).empty()) continue;
    for (const std::string& name : all_schedule_names(problem, ranks)) {
      if (!std::holds_alternative<Recipe>(resolve_schedule(name, problem, ranks))) continue;
      ShardedRun run;
      run.backend = backend.name;
      run.ranks = ranks;
      run.options.schedule = name;
      run.options.passes = Passes::both;
      CAPTURE(name, ranks, backend.name, name_of(problem.dtype));
      CHECK(test::largest_error(run_sharded(inputs, run), exact) <= most);
      ++count;
    }
  }
  return count;
}

std::int64_t bytes_sent(const Problem& problem, Pass pass) {
  ScheduleRequest request;
  request.schedule = "ring";
  request.passes = Passes::both;
  const AttentionPlan plan(problem, 4, request);
  std::int64_t sum = 0;
  for (const std::int64_t bytes : plan.counts(pass).bytes_sent) sum += bytes;
  return sum;
}

}  // namespace

TEST_CASE("values in keys agree with float64 in every schedule") {
  for (const int ranks : cases_to_run<int>({1, 2, 3, 4, 5, 6, 7, 8, 16}, 5)) {
    CHECK(check_shared(latent_problem(), ranks, 5e-6) >= 2);
    CHECK(check_shared(everything(), ranks, 5e-6) >= 2);
  }
}

TEST_CASE("values in keys in every element type") {
  for (const DType dtype : {DType::fp64, DType::bf16, DType::fp16}) {
    Problem problem = everything();
    problem.dtype = dtype;
    for (const int ranks : {1, 3}) CHECK(check_shared(problem, ranks, dtype == DType::fp64 ? 1e-13 : 3e-3) >= 1);
  }
}

TEST_CASE("the latents of DeepSeek's models") {
  Problem problem = latent_problem();
  problem.batch = 1;
  problem.heads = 4;
  problem.head_dim = 576;
  problem.value_dim = 512;
  for (const int ranks : cases_to_run<int>({2, 1, 3})) CHECK(check_shared(problem, ranks, 5e-6) >= 2);
  problem.seq_q = 2;  // decoding
  CHECK(check_shared(problem, 2, 5e-6) >= 2);
  problem.dtype = DType::bf16;
  CHECK(check_shared(problem, 2, 3e-3) >= 2);
}

TEST_CASE("keys that share a component, with values in them") {
  Problem problem = latent_problem();
  problem.batch = 1;
  problem.seq_q = problem.seq_kv = 256;
  Inputs inputs(problem, shared_seed);
  inputs.add(30, 0, 40);  // past the values
  const ExactResult exact = test::exact_of(inputs);
  for (const char* schedule : {"zigzag-ring", "burst", "attention2d"}) {
    ShardedRun run;
    run.backend = "cpu";
    run.ranks = 4;
    run.options.schedule = schedule;
    run.options.passes = Passes::both;
    CAPTURE(schedule);
    CHECK(test::largest_error(run_sharded(inputs, run), exact) <= 5e-6);
  }
}

TEST_CASE("keys with their values are sent once") {
  Problem shared = latent_problem(), apart = shared;
  apart.shared_kv = false;
  // A forward ring sends nothing but keys and values.
  CHECK(bytes_sent(shared, Pass::forward) * 64 == bytes_sent(apart, Pass::forward) * 40);
  CHECK(bytes_sent(shared, Pass::backward) * 64 == bytes_sent(apart, Pass::backward) * 40);
}

TEST_CASE("values of their own beside those in keys are refused") {
  const Problem problem = latent_problem();
  run_ranks(1, [&](Rank, Transport& transport) {
    const auto device = make_device("reference", {});
    Attention attention(problem, {.passes = Passes::both}, *device, transport);
    std::vector<float> q(2 * 53 * 5 * 40), o(2 * 53 * 5 * 24), lse(2 * 53 * 5), k(2 * 53 * 40), v(2 * 53 * 24);
    Bindings bindings;
    bindings.q = dense_view(q.data(), 2, 53, 5, 40);
    bindings.k = dense_view(k.data(), 2, 53, 1, 40);
    bindings.o = dense_view(o.data(), 2, 53, 5, 24);
    bindings.lse = statistics_view(lse.data(), 2, 5, 53);
    CHECK_NOTHROW(attention.forward(bindings));
    bindings.v = dense_view(v.data(), 2, 53, 1, 24);
    CHECK_THROWS_WITH(attention.forward(bindings), contains_text("was given v (the problem has shared_kv"));
    bindings.v = {};
    bindings.dv = dense_view(v.data(), 2, 53, 1, 24);
    CHECK_THROWS_WITH(attention.backward(bindings), contains_text("was given dv (the problem has shared_kv"));
  });
}
