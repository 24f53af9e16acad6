/// The order and the time in which messages arrive change nothing in the result, bit for bit.

#include "catch.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/sharded.hpp"

using namespace distattn;
using test::Inputs;
using test::run_sharded;
using test::ShardedRun;

namespace {

Problem causal_problem() {
  Problem problem;
  problem.seq_q = problem.seq_kv = 48;
  problem.heads = 4;
  problem.kv_heads = 2;
  problem.head_dim = problem.value_dim = 8;
  return problem;
}

void check_same_bits(const ExactResult& a, const ExactResult& b) {
  CHECK(a.o == b.o);
  CHECK(a.lse == b.lse);
  CHECK(a.dq == b.dq);
  CHECK(a.dk == b.dk);
  CHECK(a.dv == b.dv);
}

}  // namespace

TEST_CASE("two hundred delivery orders give the same bits") {
  const Inputs inputs(causal_problem(), 3);
  ShardedRun run;
  run.ranks = 6;
  run.runs = 2;
  run.options.passes = Passes::both;
  const std::vector<std::pair<const char*, Routes>> cases{
      {"mesh:1x2x3:zigzag", {}}, {"balanced-split", {}}, {"zigzag-ring", {3, 2}}, {"mesh:2x3x1:chunked", {2, 1}}};
  for (const auto& [name, routes] : cases) {
    run.options.schedule = name;
    run.options.node_size = routes.node_size;
    run.options.ahead = routes.ahead;
    run.inproc.delivery_seed.reset();
    const ExactResult undisturbed = run_sharded(inputs, run);
    for (std::uint64_t seed = 0; seed < (is_sanitized ? 10 : 50); ++seed) {
      CAPTURE(name, seed);
      run.inproc.delivery_seed = seed;
      check_same_bits(run_sharded(inputs, run), undisturbed);
    }
  }
}

TEST_CASE("threads a rank and repeated runs change no bit") {
  const Inputs inputs(causal_problem(), 4);
  ShardedRun run;
  run.ranks = 3;
  run.options.schedule = "mesh:1x3x1:zigzag";
  run.options.passes = Passes::both;
  const ExactResult once = run_sharded(inputs, run);
  run.threads = 3;
  run.runs = 3;
  check_same_bits(run_sharded(inputs, run), once);
}
