#include "cli/tools/groups.hpp"

#include "catch.hpp"

using namespace distattn;

namespace {

Problem grouped_problem(const Mask& mask, std::int64_t seq_q, std::int64_t seq_kv) {
  return {.seq_q = seq_q, .seq_kv = seq_kv, .head_dim = 8, .value_dim = 8, .mask = mask};
}

using Ids = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("documents are groups in their order, empty ones too") {
  Mask mask = causal_mask();
  mask.documents = {0, 2, 2, 5};
  const MaskGroups made = groups_of(grouped_problem(mask, 5, 5));
  REQUIRE(made.groups.size() == 3);
  CHECK(made.of_query == Ids{0, 0, 2, 2, 2});
  CHECK(made.of_key == Ids{0, 0, 2, 2, 2});
  CHECK(made.groups[1].keys.empty());
  CHECK(made.groups[2].keys.begin == 2);

  const MaskGroups last = groups_of(grouped_problem(mask, 2, 5));  // queries are the last positions
  CHECK(last.of_query == Ids{2, 2});
  CHECK(last.groups[0].queries.empty());
  CHECK(groups_of(grouped_problem(mask, 7, 5)).of_query == Ids{-1, -1, 0, 0, 2, 2, 2});
}

TEST_CASE("bands that share a query or a key are one group") {
  CHECK(groups_of(grouped_problem(causal_mask(), 4, 4)).of_query == Ids{0, 0, 0, 0});
  CHECK(groups_of(grouped_problem(block_causal_mask(6, 2), 6, 6)).groups.size() == 1);
  // Keys 0 and 1 are seen by queries 0 to 1 and 4 to 5; queries 2 and 3 see keys of their own; key 5 is seen by none.
  const Mask mask = band_mask({{2, 4, 2, 5}, {0, 2, 0, 2}, {4, 6, 1, 2}});
  const MaskGroups made = groups_of(grouped_problem(mask, 7, 7));
  CHECK(made.of_query == Ids{0, 0, 1, 1, 0, 0, -1});
  CHECK(made.of_key == Ids{0, 0, 1, 1, 1, -1, -1});
  REQUIRE(made.groups.size() == 2);
  CHECK((made.groups[0].queries.begin == 0 && made.groups[0].queries.end == 6));
  CHECK((made.groups[1].keys.begin == 2 && made.groups[1].keys.end == 5));
}

TEST_CASE("what a difference cuts off does not join groups") {
  // Two rectangles that share queries and keys, of which their differences leave queries 0 to 3 and 4 to 7.
  const Mask mask = band_mask({{0, 8, 0, 2, -1, 1}, {4, 8, 4, 8, 0, unbounded}});
  const MaskGroups made = groups_of(grouped_problem(mask, 8, 8));
  CHECK(made.of_query == Ids{0, 0, 0, -1, 1, 1, 1, 1});
  CHECK(made.of_key == Ids{0, 0, -1, -1, 1, 1, 1, 1});
}

TEST_CASE("a window over many documents is grouped within moments") {
  constexpr std::int64_t documents = 200'000;  // squares of this many take minutes
  Mask mask = causal_mask();
  std::vector<Band> bands;
  for (std::int64_t d = 0; d <= documents; ++d) mask.documents.push_back(d);
  for (std::int64_t d = 0; d < documents; ++d) bands.push_back({d, d + 1, documents - d - 1, documents - d});
  CHECK(groups_of(grouped_problem(mask, documents, documents)).groups.size() == documents);
  CHECK(groups_of(grouped_problem(band_mask(bands), documents, documents)).groups.size() == documents);
}
