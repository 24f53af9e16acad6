/// Several masks on one layout.
#include "distattn/layers.hpp"

#include <limits>

#include "catch.hpp"
#include "cli/tools/documents.hpp"
#include "distattn/choose.hpp"
#include "distattn/error.hpp"
#include "tests/support/masks.hpp"
#include "tests/support/random.hpp"

using namespace distattn;

namespace {

constexpr int ranks = 8;

Problem packed_layer(Mask mask) {
  Problem problem;
  problem.seq_q = problem.seq_kv = 65536;
  problem.heads = 32;
  problem.kv_heads = 8;
  problem.head_dim = problem.value_dim = 128;
  problem.dtype = DType::bf16;
  problem.mask = std::move(mask);
  problem.mask.documents = {0, 30000, 31000, 40000, 55000, 55001, 65536};
  return problem;
}

Mask window(std::int64_t left) {
  Mask mask = causal_mask();
  mask.left = left;
  return mask;
}

ScheduleRequest asked(std::string schedule) {
  return {.schedule = std::move(schedule), .passes = Passes::both, .machine = find_machine("dgx-h100x8")};
}

double seconds(const AttentionPlan& plan) {
  const Machine machine = find_machine("dgx-h100x8");
  double sum = 0;
  for (const PassPlan& pass : predict(plan, &machine)) sum += pass.predicted_s;
  return sum;
}

/// Of all layers.
double seconds(const std::vector<LayerKind>& kinds, const std::vector<AttentionPlan>& plans) {
  double sum = 0;
  for (std::size_t k = 0; k < kinds.size(); ++k) sum += kinds[k].weight * seconds(plans[k]);
  return sum;
}

void check_one_layout(const std::vector<AttentionPlan>& plans) {
  const Sharding& first = plans.front().outline(Pass::forward).sharding;
  for (const AttentionPlan& plan : plans) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      for (Rank rank = 0; rank < first.ranks; ++rank) {
        CHECK(positions(plan.outline(pass).sharding.queries, rank) == positions(first.queries, rank));
        CHECK(positions(plan.outline(pass).sharding.keys, rank) == positions(first.keys, rank));
      }
    }
  }
}

}  // namespace

TEST_CASE("masks on one layout have the same owners, and no layout of one of them is better for all", "[layers]") {
  for (const double weight : {1.0, 5.0}) {
    for (const char* const schedule : {"placed", "auto"}) {
      const std::vector<LayerKind> kinds = {{packed_layer(causal_mask()), 1}, {packed_layer(window(511)), weight}};
      const auto plans = or_refuse(plan(kinds, ranks, asked(schedule)));
      REQUIRE(plans.size() == 2);
      check_one_layout(plans);
      for (const LayerKind& alone : kinds) {
        ScheduleRequest given = asked("placed");
        given.layout = AttentionPlan(alone.problem, ranks, given).layout();
        CHECK(seconds(kinds, plans) <= 1.02 * seconds(kinds, or_refuse(plan(kinds, ranks, given))));
      }
      // What is best for each by itself is a bound.
      CHECK(seconds(kinds, plans) >= 0.97 * (seconds(AttentionPlan(kinds[0].problem, ranks, asked("auto"))) +
                                             weight * seconds(AttentionPlan(kinds[1].problem, ranks, asked("auto")))));
    }
  }
}

TEST_CASE("a mask that is given twice takes no longer than alone", "[layers]") {
  Problem problem = packed_layer(causal_mask());
  problem.seq_q = problem.seq_kv = 4096;
  problem.heads = 8;
  problem.kv_heads = 2;
  problem.head_dim = problem.value_dim = 64;
  problem.mask.documents = draw_documents("pile", 4096, 3);
  const ScheduleRequest request{
      .schedule = "placed", .passes = Passes::both, .machine = find_machine("ethernet-h100x64")};
  const Machine& machine = std::get<Machine>(request.machine);
  const auto seconds_on = [&](const AttentionPlan& plan) {
    double sum = 0;
    for (const PassPlan& pass : predict(plan, &machine)) sum += pass.predicted_s;
    return sum;
  };
  const double alone = seconds_on(AttentionPlan(problem, 7, request));
  for (const AttentionPlan& each : or_refuse(plan({{problem, 1}, {problem, 1}}, 7, request)))
    CHECK(seconds_on(each) <= alone * (1 + 1e-12));
}

TEST_CASE("a named schedule is that of all masks", "[layers]") {
  const std::vector<LayerKind> kinds = {
      {packed_layer(causal_mask())}, {packed_layer(window(100))}, {packed_layer(full_mask())}};
  for (const char* const schedule : {"zigzag-ring", "usp:8", "ring/burst", "attention2d"}) {
    const auto plans = or_refuse(plan(kinds, ranks, asked(schedule)));
    check_one_layout(plans);
    for (std::size_t k = 0; k < kinds.size(); ++k)
      CHECK(plans[k].fingerprint() == AttentionPlan(kinds[k].problem, ranks, asked(schedule)).fingerprint());
  }
  const auto why = std::get<WhyNot>(plan(kinds, ranks, asked("mesh:1x8x1:chunked")));
  CHECK(why.kind == WhyNot::Kind::does_not_apply);
  CHECK_THAT(why.message, contains_text("deals tokens out by the mask"));
}

TEST_CASE("one kind of layers is planned as its problem", "[layers]") {
  for (const char* const schedule : {"placed", "auto", "ring"}) {
    const auto plans = or_refuse(plan({{packed_layer(window(300)), 7}}, 5, asked(schedule)));
    CHECK(plans.front().fingerprint() == AttentionPlan(packed_layer(window(300)), 5, asked(schedule)).fingerprint());
  }
}

TEST_CASE("random masks share a layout on any number of ranks", "[layers]") {
  constexpr std::uint64_t seed = 38;
  test::Random random(seed);
  for (int i = 0; i < 10; ++i) {
    CAPTURE(seed, i);
    const std::int64_t tokens = random.between(20, 90);
    std::vector<LayerKind> kinds;
    for (int k = 0; k < 3; ++k) {
      Problem problem = packed_layer(causal_mask());
      problem.seq_q = problem.seq_kv = tokens;
      problem.mask = test::random_mask(random, tokens);
      kinds.push_back({problem, static_cast<double>(random.between(1, 9)) / 2});
    }
    const int some = static_cast<int>(random.between(1, 9));
    ScheduleRequest request = asked(i % 2 == 0 ? "placed" : "auto");
    request.balance_tokens = 0.5;
    check_one_layout(or_refuse(plan(kinds, some, request)));
  }
}

TEST_CASE("buffers of all masks count together", "[layers]") {
  const std::vector<LayerKind> kinds = {{packed_layer(causal_mask())}, {packed_layer(window(511))}};
  for (const char* const schedule : {"ring", "placed", "auto"}) {
    ScheduleRequest request = asked(schedule);
    std::int64_t bytes = 0, largest = 0;
    for (const AttentionPlan& plan : or_refuse(plan(kinds, ranks, request))) {
      bytes += plan.memory_bytes();
      largest = std::max(largest, plan.memory_bytes());
    }
    request.memory_bytes = bytes;
    CHECK(std::holds_alternative<std::vector<AttentionPlan>>(plan(kinds, ranks, request)));
    request.memory_bytes = largest / 2;
    const auto why = std::get<WhyNot>(plan(kinds, ranks, request));
    CHECK_THAT(why.message, contains_text("give more memory") || contains_text("memory_bytes allows"));
  }
}

TEST_CASE("kinds that make no sense are refused", "[layers]") {
  const auto says = [](const std::vector<LayerKind>& kinds, const ScheduleRequest& request = asked("auto")) {
    try {
      or_refuse(plan(kinds, ranks, request));
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const Problem problem = packed_layer(causal_mask());
  CHECK_THAT(says({}), contains_text("at least one"));
  for (const double weight : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")})
    CHECK_THAT(says({{problem}, {problem, weight}}), contains_text("give a positive number"));
  Problem shorter = problem;
  shorter.seq_q = 100;
  CHECK_THAT(says({{problem}, {shorter}}), contains_text("100 queries and 65536 keys beside 65536 and 65536"));
  CHECK_THAT(says({{shorter}, {shorter}}, asked("placed")),
             contains_text("placed deals out the tokens of one sequence"));
  Problem wrong = problem;
  wrong.mask.documents.back() = 3;
  CHECK_THAT(says({{problem}, {wrong}}), contains_text("sort it"));
}
