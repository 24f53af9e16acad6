/// Plans from programs that were made elsewhere: whatever does not belong together is refused, never looked at.

#include <functional>
#include <type_traits>

#include "catch.hpp"
#include "distattn/attention.hpp"

using namespace distattn;

namespace {

Problem small_problem() {
  Problem problem;
  problem.seq_q = problem.seq_kv = 32;
  problem.heads = problem.kv_heads = 2;
  problem.head_dim = problem.value_dim = 8;
  problem.mask = causal_mask();
  return problem;
}

Schedule program(Pass pass, const Problem& problem = small_problem(), const char* schedule = "ring") {
  ScheduleRequest options;
  options.schedule = schedule;
  options.passes = Passes::both;
  return AttentionPlan(problem, 2, options).schedule(pass);
}

/// What is said of a forward pass that was changed.
std::string error_after(const std::function<void(Schedule&)>& change) {
  std::vector<Schedule> passes{program(Pass::forward)};
  change(passes.front());
  try {
    const AttentionPlan plan(std::move(passes));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return {};
}

void require_different_problems(const std::function<void(Problem&)>& change) {
  Problem other = small_problem();
  change(other);
  REQUIRE_THROWS_WITH(AttentionPlan({program(Pass::forward), program(Pass::backward, other)}),
                      contains_text("different problems"));
}

}  // namespace

TEST_CASE("programs of two passes belong together when they share problem and owners") {
  Problem renamed = small_problem();
  renamed.mask.name = "lower triangle";
  CHECK_NOTHROW(AttentionPlan({program(Pass::backward, renamed), program(Pass::forward)}));

  require_different_problems([](Problem& p) { p.mask = full_mask(); });
  for (int field = 0, fields = 1; field < fields; ++field) {
    require_different_problems([&](Problem& p) {
      fields = 0;
      fields_of(p.scores, [&](const char*, auto& value) {
        using Value = std::remove_reference_t<decltype(value)>;
        if (fields++ == field) value = std::is_same_v<Value, bool> ? Value(1) : Value(0.5);
      });
    });
  }
  require_different_problems([](Problem& p) { p.dtype = DType::bf16; });
  require_different_problems([](Problem& p) { p.wire = DType::bf16; });
  REQUIRE_THROWS_WITH(AttentionPlan({program(Pass::forward), program(Pass::backward, small_problem(), "zigzag-ring")}),
                      contains_text("shard differently"));
}

TEST_CASE("programs of an unsound sharding are refused before they are looked at") {
  CHECK(error_after([](Schedule&) {}).empty());
  CHECK(error_after([](Schedule& s) { s.ranks.pop_back(); }).find("ranks has 1 programs") == 0);
  CHECK(error_after([](Schedule& s) { s.ranks.resize(3); }).find("ranks has 3 programs") == 0);
  CHECK(error_after([](Schedule& s) { s.outline.sharding.ranks = -1; }).find("ranks has 2 programs") == 0);
  CHECK(error_after([](Schedule& s) { s.outline.sharding.queries[0].owner = 1000000; }).find("queries[0]") == 0);
  CHECK(error_after([](Schedule& s) { s.outline.sharding.keys.clear(); }).find("keys hold fewer") == 0);
  CHECK(error_after([](Schedule& s) { s.outline.sharding.groups.clear(); }).find("groups hold 0 of 2") == 0);
}

TEST_CASE("nodes are the machine's unless their size is given, and ahead needs them") {
  ScheduleRequest options;
  options.schedule = "ring";
  const auto routes = [&](int ranks) { return AttentionPlan(small_problem(), ranks, options).routes(); };
  CHECK(routes(16).node_size == 0);
  options.machine = "dgx-a100x2";
  CHECK(routes(16).node_size == 8);
  CHECK(routes(8).node_size == 0);
  options.ahead = 2;
  CHECK(routes(16).ahead == 2);
  CHECK_THROWS_WITH(routes(8), contains_text("ahead 2 (one node has 8 ranks: nothing travels between nodes)"));
  options.node_size = 2;
  CHECK(routes(8).node_size == 2);
  options.machine = find_machine("dgx-h100x8");
  CHECK(routes(8).node_size == 2);
}

TEST_CASE("what auto chose makes the same plan when it is named") {
  ScheduleRequest options;
  options.machine = "dgx-a100x2";
  options.passes = Passes::both;
  const AttentionPlan chosen(small_problem(), 16, options);
  options.schedule = chosen.name();
  options.node_size = chosen.routes().node_size;
  options.ahead = chosen.routes().ahead;
  if (chosen.name() != "placed") options.machine = "";  // which is made for the machine
  CHECK(AttentionPlan(small_problem(), 16, options).fingerprint() == chosen.fingerprint());
}

TEST_CASE("a schedule that needs more memory than it may have is refused") {
  ScheduleRequest options;
  options.schedule = "ring";
  options.passes = Passes::both;
  const AttentionPlan plan(small_problem(), 2, options);
  options.memory_bytes = memory_side_by_side({&plan.counts(Pass::forward), &plan.counts(Pass::backward)});
  CHECK_NOTHROW(AttentionPlan(small_problem(), 2, options));
  --options.memory_bytes;
  CHECK_THROWS_WITH(AttentionPlan(small_problem(), 2, options), contains_text("ring needs "));
}

TEST_CASE("a plan takes another's place") {
  static_assert(std::is_nothrow_move_assignable_v<Attention>);
  ScheduleRequest options;
  options.schedule = "ring";
  AttentionPlan plan(small_problem(), 2, options);
  plan = AttentionPlan(small_problem(), 4, options);
  CHECK(plan.ranks() == 4);
  CHECK(plan.schedule(Pass::forward).ranks.size() == 4);
}
