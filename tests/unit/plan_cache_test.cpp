#include "distattn/plan_cache.hpp"

#include <thread>
#include <vector>

#include "catch.hpp"
#include "distattn/error.hpp"

using namespace distattn;

namespace {

Problem packed(std::int64_t first) {
  Problem problem;
  problem.seq_q = problem.seq_kv = 1000;
  problem.heads = 4;
  problem.kv_heads = 2;
  problem.head_dim = problem.value_dim = 16;
  problem.mask = causal_mask();
  problem.mask.documents = {0, first, 1000};
  return problem;
}

const ScheduleRequest placed{.schedule = "placed", .passes = Passes::both};

}  // namespace

TEST_CASE("equal arguments get one plan", "[plan_cache]") {
  PlanCache plans;
  const auto first = plans.get(packed(300), 4, placed);
  CHECK(plans.get(packed(300), 4, placed) == first);
  CHECK(plans.get(packed(301), 4, placed) != first);
  CHECK(plans.get(packed(300), 5, placed) != first);
  CHECK(plans.get(packed(300), 4, {.schedule = "placed"}) != first);
  CHECK(plans.size() == 4);
  CHECK(first->fingerprint() == AttentionPlan(packed(300), 4, placed).fingerprint());
}

TEST_CASE("the plans that were asked for last are kept", "[plan_cache]") {
  PlanCache plans(2);
  const auto first = plans.get(packed(1), 2, placed), second = plans.get(packed(2), 2, placed);
  CHECK(plans.get(packed(1), 2, placed) == first);
  plans.get(packed(3), 2, placed);
  CHECK(plans.size() == 2);
  CHECK(plans.get(packed(1), 2, placed) == first);
  CHECK(plans.get(packed(2), 2, placed) != second);
}

TEST_CASE("a plan is made while others are used, from any thread", "[plan_cache]") {
  PlanCache plans;
  for (int step = 0; step < 8; ++step) {
    plans.begin(packed(100 + step), 4, placed);
    plans.begin(packed(100 + step), 4, placed);
    std::vector<std::shared_ptr<const AttentionPlan>> got(6);
    {
      std::vector<std::jthread> threads;
      for (auto& each : got) threads.emplace_back([&, step] { each = plans.get(packed(100 + step), 4, placed); });
    }
    for (const auto& each : got) REQUIRE(each == got.front());
  }
  CHECK(plans.size() == 8);
  for (int other = 0; other < 4; ++other) plans.begin(packed(500 + other), 4, placed);  // and left behind
}

TEST_CASE("a failure is told, and not kept", "[plan_cache]") {
  PlanCache plans;
  Problem wrong = packed(300);
  wrong.mask.documents.back() = 999;
  plans.begin(wrong, 4, placed);
  CHECK_THROWS_AS(plans.get(wrong, 4, placed), Error);
  CHECK(plans.size() == 0);
  CHECK_THROWS_AS(plans.get(packed(300), 4, {.schedule = "spiral"}), Error);
  CHECK(plans.size() == 0);
}
