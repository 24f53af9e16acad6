#include "distattn/papers.hpp"

#include <algorithm>
#include <cmath>

#include "catch.hpp"
#include "distattn/baselines.hpp"
#include "distattn/error.hpp"

using namespace distattn;
using Catch::Matchers::Contains;

namespace {

double ours(const PaperTable& table, const std::string& what) {
  const auto found =
      std::find_if(table.rows.begin(), table.rows.end(), [&](const PaperRow& row) { return row.what == what; });
  REQUIRE(found != table.rows.end());
  return found->ours;
}

}  // namespace

TEST_CASE("every figure of every paper is computed, and every difference explained", "[papers]") {
  const std::string name = GENERATE("attention2d", "burstattention", "distflashattn");
  const PaperTable table = compare_with_paper(name);
  CHECK_FALSE(table.source.empty());
  CHECK_FALSE(table.scope.empty());
  CHECK(table.rows.size() >= 15);
  for (const PaperRow& row : table.rows) {
    INFO(name << ": " << row.what);
    CHECK(std::isfinite(row.ours));
    CHECK_FALSE(row.where.empty());
    const bool differs = std::isfinite(row.published) && std::abs(row.relative_difference()) > 0.02;
    CHECK((!differs || !row.note.empty()));
  }
}

TEST_CASE("counts of whole tiles are those of DistFlashAttn's Figure 1", "[papers]") {
  const PaperTable table = compare_with_paper("distflashattn");
  CHECK(ours(table, "idle share of the ring, 8 workers, whole tiles") == Approx(0.4375));
  CHECK(ours(table, "idle share of balanced, 8 workers, whole tiles") == Approx(0.1));
  CHECK(ours(table, "idle share of balanced, 7 workers, whole tiles") == 0);
  CHECK(ours(table, "expected speedup of the ring, 8 workers") == Approx(4.5));
  CHECK(ours(table, "expected speedup of balanced, 8 workers") == Approx(7.2));
}

TEST_CASE("BurstAttention saves a quarter like for like and loses from two query heads a key head on", "[papers]") {
  const PaperTable table = compare_with_paper("burstattention");
  CHECK(ours(table, "backward against moving keys and gradients, no mask") == Approx(0.75).epsilon(0.02));
  CHECK(ours(table, "the same for the busiest rank under a causal mask") == Approx(14.2 / 14).epsilon(0.01));
  CHECK(ours(table, "the same with two query heads a key head, no mask") > 1);
}

TEST_CASE("a paper that is not here is refused with those that are", "[papers]") {
  CHECK(paper_names() == std::vector<std::string>{"attention2d", "burstattention", "distflashattn"});
  CHECK_THROWS_WITH(compare_with_paper("flashattention"), Contains("flashattention") && Contains("burstattention"));
}

TEST_CASE("baselines count what their papers count", "[papers]") {
  Problem problem;
  problem.seq_q = problem.seq_kv = 65536;
  problem.heads = problem.kv_heads = 33;
  problem.head_dim = problem.value_dim = 128;
  const auto all = baselines(problem, 16);
  const auto total = [&](const std::string& name) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Baseline& b) { return b.name == name; });
    REQUIRE(found != all.end());
    return found->forward + found->backward;
  };
  CHECK(total("megatron") == 10);
  CHECK(total("megatron-recompute") == 14);
  CHECK(total("ring-self-attention") == 8);
  CHECK(total("distflashattn") == 3);
  CHECK(total("burstattention") == Approx(5 + 2.0 / 128));
  CHECK(total("ulysses") == 0.5);
  CHECK(padded_heads(33, 16) == 48);
  CHECK(padded_heads(32, 16) == 32);
  CHECK_THAT(all.front().note, Contains("31.2 %"));
}
