/// The C API's scores and trees.

#include <cstdint>
#include <vector>

#include "attend.hpp"
#include "catch.hpp"

using namespace distattn::test;

TEST_CASE("caps, position biases, sink logits and largest scores equal float64") {
  for (const char* schedule : {"zigzag-ring", "ring/burst", "usp:2"}) {
    for (const char* backend : {"reference", "cpu"}) {
      distattn_options options = options_for(schedule);
      options.backend = backend;
      const distattn_status status = distattn_run_ranks(4, attend_scores, &options);
      INFO(schedule << " on " << backend << ": " << distattn_message());
      CHECK(status == DISTATTN_OK);
    }
  }
}

TEST_CASE("a tree's bands and positions come in C too") {
  const std::vector<distattn_tree_node> nodes = {{4, -1}, {3, 0}, {2, 0}, {1, 1}};
  std::size_t count = 0;
  REQUIRE(distattn_tree_mask(nodes.data(), nodes.size(), nullptr, &count, nullptr) == DISTATTN_OK);
  REQUIRE(count == 5);  // node 3 is below node 1, which node 2 does not lie behind
  std::vector<distattn_band> bands(count);
  std::vector<std::int64_t> positions(10);
  REQUIRE(distattn_tree_mask(nodes.data(), nodes.size(), bands.data(), &count, positions.data()) == DISTATTN_OK);
  CHECK(positions == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 4, 5, 7});
  CHECK(bands[0].q1 == 10);
  distattn_problem problem = small_problem();
  problem.seq_q = problem.seq_kv = 10;
  problem.bands = bands.data();
  problem.bands_count = count;
  std::int64_t tokens_of_rank = 0;
  const distattn_options options = options_for("ring");
  CHECK(distattn_planned_positions(&problem, &options, 2, 0, DISTATTN_QUERIES, nullptr, &tokens_of_rank) ==
        DISTATTN_OK);
  CHECK(distattn_tree_mask(nodes.data(), nodes.size(), nullptr, nullptr, nullptr) == DISTATTN_USAGE);
  const distattn_tree_node cycle{4, 0};
  CHECK(distattn_tree_mask(&cycle, 1, nullptr, &count, nullptr) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("a cycle"));
}

TEST_CASE(
    "slopes and bands without a count, flags that are neither, layouts of no name and ranks beyond counting are "
    "refused") {
  const auto refused = [](auto change, const char* says) {
    struct Given {
      distattn_problem problem = small_problem();
      distattn_options options = options_for("ring");
    } given;
    change(given.problem, given.options);
    const auto body = [](void* user, distattn_comm* comm) {
      const auto& [problem, options] = *static_cast<Given*>(user);
      distattn_attention* made = nullptr;
      return distattn_attention_create(&problem, &options, comm, &made);
    };
    CHECK(distattn_run_ranks(1, body, &given) == DISTATTN_USAGE);
    CHECK_THAT(message(), contains_text(says));
  };
  const double slope = 1;
  refused([&](auto& problem, auto&) { problem.alibi_slopes = &slope; }, "alibi_slopes has no entry");
  const distattn_band band = {0, 8, 0, 8, 0, 8};
  refused([&](auto& problem, auto&) { problem.bands = &band; }, "bands has no entry");
  refused([](auto& problem, auto&) { problem.causal = 2; }, "causal is 2");
  refused([](auto&, auto& options) { options.backward = -1; }, "backward is -1");
  refused([](auto&, auto& options) { options.deterministic = 7; }, "deterministic is 7");
  refused([](auto&, auto& options) { options.schedule = nullptr, options.layout = "foo"; }, "layout foo is not known");
  CHECK(distattn_run_ranks(1'000'000, attend, nullptr) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("1000000 ranks"));
}
