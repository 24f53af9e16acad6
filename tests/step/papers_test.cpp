#include "cli/step/papers.hpp"

#include <cmath>

#include "catch.hpp"
#include "cli/step/embedded.hpp"
#include "distattn/error.hpp"

using namespace distattn;
using namespace distattn::step;
using Catch::Matchers::Contains;

TEST_CASE("every paper's whole-model figures are computed, and large differences are explained", "[step]") {
  REQUIRE(embedded_files().size() == 3);
  for (const EmbeddedFile& file : embedded_files()) {
    const PaperTable table = compare_steps_with_paper(std::string(file.name));
    REQUIRE(table.rows.size() > 30);
    for (const PaperRow& row : table.rows) {
      INFO(file.name << ", " << row.where << ", " << row.what);
      REQUIRE(std::isfinite(row.ours));
      REQUIRE(row.ours > 0);
      if (std::isnan(row.published) || std::abs(row.relative_difference()) > 0.1) REQUIRE_FALSE(row.note.empty());
    }
  }
}

TEST_CASE("DistFlashAttn: steps within a quarter of Table 1, checkpointing within a tenth of Table 5", "[step]") {
  int steps = 0, speedups = 0;
  for (const PaperRow& row : compare_steps_with_paper("distflashattn").rows) {
    INFO(row.where << ", " << row.what);
    if (row.where == "Table 1") {
      ++steps;
      REQUIRE(std::abs(row.relative_difference()) < 0.25);
    }
    if (row.where == "Table 5") {
      ++speedups;
      REQUIRE(std::abs(row.relative_difference()) < 0.1);
    }
  }
  REQUIRE(steps == 36);
  REQUIRE(speedups == 3);
}

TEST_CASE("a paper that is not here is refused with those that are", "[step]") {
  REQUIRE_THROWS_WITH(compare_steps_with_paper("attention"), Contains("attention2d, burstattention, distflashattn"));
}
