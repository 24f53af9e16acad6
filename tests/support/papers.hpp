#pragma once
/// What tests of papers' tables ask of them.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "catch.hpp"
#include "cli/tools/papers.hpp"

namespace distattn {

/// Every difference is what its note claims, in sign and size, and no claim is so wide that any difference would do.
inline void check_explained(const PaperTable& table) {
  for (const PaperRow& row : table.rows) {
    INFO(table.source << ", " << row.where << ", " << row.what << ": " << row.published << " for " << row.ours);
    CHECK(row.explained());
    CHECK_FALSE(row.where.empty());
    CHECK(std::isnan(row.ours) == (row.kind == PaperKind::absent));
    if (row.claim) {
      CHECK(row.claim->least * row.claim->most > 0);
      CHECK(row.claim->most - row.claim->least <= std::max(0.2, 0.1 * row.claim->most));
      CHECK_FALSE(row.note.empty());
    }
  }
}

/// The row of that place and name.
inline const PaperRow& row_of(const PaperTable& table, const std::string& where, const std::string& what) {
  INFO(where << ", " << what);
  const auto found = std::find_if(table.rows.begin(), table.rows.end(),
                                  [&](const PaperRow& row) { return row.where == where && row.what == what; });
  REQUIRE(found != table.rows.end());
  return *found;
}

/// How many rows of a place have a published number.
inline int published_rows(const PaperTable& table, const std::string& where) {
  return static_cast<int>(std::count_if(table.rows.begin(), table.rows.end(), [&](const PaperRow& row) {
    return row.where == where && !std::isnan(row.published);
  }));
}

/// A number of a second copy is the published one of its row.
inline void check_published(const PaperTable& table, const std::string& where, const std::string& what, double value) {
  INFO(where << ", " << what);
  CHECK(row_of(table, where, what).published == Approx(value).epsilon(1e-12));
}

}  // namespace distattn
