#include "distattn/table.hpp"

#include <fmt/core.h>

#include <map>

#include "catch.hpp"
#include "distattn/error.hpp"

using namespace distattn;

namespace {

Problem problem_of(std::int64_t tokens, Mask mask = causal_mask()) {
  return {.seq_q = tokens,
          .seq_kv = tokens,
          .heads = 8,
          .kv_heads = 2,
          .head_dim = 8,
          .value_dim = 8,
          .mask = std::move(mask)};
}

Recipe recipe_of(std::string_view name, const Problem& problem, int ranks) {
  RecipeOrReason resolved = resolve_schedule(name, problem, ranks);
  if (const auto* reason = std::get_if<std::string>(&resolved)) FAIL(name << ": " << *reason);
  return std::get<Recipe>(std::move(resolved));
}

std::string reason_of(std::string_view name, const Problem& problem, int ranks) {
  const RecipeOrReason resolved = resolve_schedule(name, problem, ranks);
  return std::holds_alternative<std::string>(resolved) ? std::get<std::string>(resolved) : "applies";
}

/// A schedule's tiles as rows of "query·key" by rank, a step a row.
using Grid = std::vector<std::vector<std::string>>;
Grid grid_of(std::string_view name, const Problem& problem, int ranks, int node_size = 0) {
  const Recipe recipe = recipe_of(name, problem, ranks);
  const auto tiles = std::make_shared<const Tiles>(shard(problem, ranks, recipe.layout, recipe.groups));
  const Table table = recipe.table(tiles, node_size);
  Grid grid(static_cast<std::size_t>(table.steps), std::vector<std::string>(static_cast<std::size_t>(ranks)));
  for (int step = 0; step < table.steps; ++step)
    for (Rank rank = 0; rank < ranks; ++rank) {
      std::string& cell = grid[static_cast<std::size_t>(step)][static_cast<std::size_t>(rank)];
      table.tiles(step, rank, [&](const Tile& tile) {
        if (!cell.empty()) cell += ' ';
        cell += fmt::format("{}.{}", index(tile.query), index(tile.key));
      });
    }
  return grid;
}

void require_malformed(std::string_view name) {
  INFO(name);
  REQUIRE_THROWS_WITH(resolve_schedule(name, problem_of(64), 8), contains_text("schedule"));
}

}  // namespace

TEST_CASE("the ring passes keys one rank on a step") {
  CHECK(grid_of("ring", problem_of(16), 4) ==
        Grid{{"0.0", "1.1", "2.2", "3.3"}, {"", "1.0", "2.1", "3.2"}, {"", "", "2.0", "3.1"}, {"", "", "", "3.0"}});
}

TEST_CASE("burst keeps the keys and lets the queries visit") {
  CHECK(grid_of("burst", problem_of(12), 3) == Grid{{"0.0", "1.1", "2.2"}, {"1.0", "2.1", ""}, {"2.0", "", ""}});
}

TEST_CASE("balanced is Figure 1 of DistFlashAttn") {
  CHECK(grid_of("balanced", problem_of(16), 4) ==
        Grid{{"0.0", "1.1", "2.2", "3.3"}, {"3.0", "1.0", "2.1", "3.2"}, {"", "", "2.0", "3.1"}});
  CHECK(grid_of("balanced", problem_of(15), 3) == Grid{{"0.0", "1.1", "2.2"}, {"2.0", "1.0", "2.1"}});
}

TEST_CASE("balanced-split shares the last step of an even number of ranks") {
  CHECK(grid_of("balanced-split", problem_of(16), 4).back() ==
        std::vector<std::string>{"5.0 5.1", "7.2 7.3", "4.0 4.1", "6.2 6.3"});
}

TEST_CASE("a mesh visits its own node first") {
  const Problem full = problem_of(16, full_mask());
  const Grid flat = grid_of("mesh:1x4x1:block", full, 4), rings = grid_of("mesh:1x4x1:block", full, 4, 2);
  const auto keys_of_rank_0 = [](const Grid& grid) {
    std::vector<std::string> out;
    for (const auto& step : grid) out.push_back(step[0]);
    return out;
  };
  CHECK(keys_of_rank_0(flat) == std::vector<std::string>{"0.0", "0.3", "0.2", "0.1"});
  CHECK(keys_of_rank_0(rings) == std::vector<std::string>{"0.0", "0.1", "0.2", "0.3"});
}

TEST_CASE("a window leaves the late steps of a ring empty") {
  Mask mask = causal_mask();
  mask.left = 4;
  const Grid grid = grid_of("ring", problem_of(32, mask), 8);
  CHECK(grid[1][5] == "5.4");
  for (std::size_t step = 2; step < grid.size(); ++step)
    for (const std::string& cell : grid[step]) CHECK(cell.empty());
}

TEST_CASE("names resolve to layouts, head groups and modes") {
  const Problem problem = problem_of(64);
  CHECK(recipe_of("zigzag-ring", problem, 8).layout == Layout{LayoutKind::zigzag});
  CHECK(recipe_of("burst:zigzag", problem, 8).name == "burst:zigzag");
  CHECK(recipe_of("ulysses", problem, 8).groups == 8);
  CHECK(recipe_of("usp:4", problem, 8).groups == 4);
  CHECK(recipe_of("allgather", problem, 8).mode == Mode::gathered);
  CHECK(recipe_of("balanced-split", problem, 8).layout == Layout{LayoutKind::block, 2});
  CHECK(recipe_of("mesh:2x2x2", problem, 8).name == "mesh:2x2x2:zigzag");
  CHECK(recipe_of("mesh:2x2x2:chunked", problem, 8).layout == Layout{LayoutKind::chunked});
  CHECK(recipe_of("attention2d:4x2", problem, 8).name == "attention2d:4x2");
}

TEST_CASE("attention2d chooses the divisor nearest the square root") {
  const Problem problem = problem_of(64);
  for (const auto& [ranks, rows] : std::map<int, int>{{1, 1}, {2, 1}, {3, 1}, {6, 2}, {8, 2}, {12, 3}, {16, 4}, {7, 1}})
    CHECK(grid_of("attention2d", problem, ranks).size() == static_cast<std::size_t>(rows + ranks / rows - 1));
}

TEST_CASE("what does not apply has a reason") {
  CHECK(reason_of("ulysses", problem_of(64), 9) == "9 head groups need as many heads, there are 8");
  CHECK(reason_of("usp:3", problem_of(64), 8) == "3 head groups do not divide 8 ranks");
  CHECK(reason_of("attention2d:3x3", problem_of(64), 8) == "1x3x3 does not make a mesh of 8 ranks");
  CHECK(reason_of("mesh:2000000000x2000000000x2000000000", problem_of(64), 8).find("does not make a mesh") !=
        std::string::npos);
  CHECK(reason_of("balanced", problem_of(64, full_mask()), 8) ==
        "balanced needs a mask in which no query sees a later key");
  Problem few = problem_of(64);
  few.seq_q = 1;
  CHECK(reason_of("balanced-split", few, 8).find("1 queries and 64 keys") != std::string::npos);
}

TEST_CASE("malformed names are errors") {
  for (const char* name : {"",
                           "rings",
                           ":",
                           "ring:",
                           "ring:2",
                           "auto:1",
                           "burst:block",
                           "usp",
                           "usp:",
                           "usp:abc",
                           "usp:0",
                           "usp:-2",
                           "usp:2x",
                           "usp:99999999999",
                           "mesh",
                           "mesh:2x4",
                           "mesh:2x-1x3",
                           "mesh:0x1x8",
                           "mesh:2x2x2:",
                           "mesh:2x2x2:ring",
                           "mesh:2x2x2x1",
                           "mesh:2x2x+2",
                           "mesh:1x8x99999999999",
                           "attention2d:4",
                           "attention2d:4x",
                           "ring/"})
    require_malformed(name);
  CHECK_THROWS_WITH(resolve_schedule("rings", problem_of(64), 8), contains_text("usp:U"));
  CHECK_THROWS_WITH(resolve_schedule("usp", problem_of(64), 8), contains_text("schedule usp is not understood"));
  CHECK_THROWS_AS(resolve_schedule("ring", problem_of(64), 0), Error);
}

TEST_CASE("a pair shares one layout") {
  const auto pair = [](std::string_view name) { return resolve_pair(name, problem_of(64), 8); };
  const auto burst_attention = pair("ring/burst");
  REQUIRE(std::holds_alternative<RecipePair>(burst_attention));
  CHECK(std::get<RecipePair>(burst_attention).backward.name == "burst");
  CHECK(std::get<RecipePair>(pair("ulysses")).backward.name == "ulysses");
  CHECK(std::holds_alternative<RecipePair>(pair("ulysses/ring")));
  CHECK(std::get<std::string>(pair("ring/burst:zigzag")) ==
        "ring keeps its tokens in layout block and burst:zigzag in zigzag, a pair shares one layout");
  CHECK(std::holds_alternative<std::string>(pair("ring/balanced-split")));
  CHECK(std::get<std::string>(pair("usp:3/ring")) == "3 head groups do not divide 8 ranks");
  CHECK_THROWS_AS(pair("ring/burst/ring"), Error);
  for (const char* name : {"ring/", "/ring"}) CHECK_THROWS_WITH(pair(name), contains_text("lacks a side"));
  for (const char* name : {"auto/ring", "ring/auto"}) CHECK_THROWS_WITH(pair(name), contains_text("auto alone"));
  CHECK_THROWS_WITH(pair("placed/placed"), contains_text("placed alone"));
}

TEST_CASE("all names every fixed schedule and the meshes that fit") {
  const std::vector<std::string> names = all_schedule_names(problem_of(64), 4);
  CHECK(names == std::vector<std::string>{"ring", "zigzag-ring", "striped-ring", "burst", "burst:zigzag", "attention2d",
                                          "ulysses", "usp:2", "usp:4", "allgather", "balanced", "balanced-split",
                                          "mesh:2x1x2:zigzag", "mesh:4x1x1:zigzag", "placed"});
}

TEST_CASE("how each schedule is written follows from what it takes") {
  std::vector<std::string> written;
  for (const NamedSchedule& schedule : schedules()) written.push_back(schedule.grammar());
  CHECK(written == std::vector<std::string>{"ring", "zigzag-ring", "striped-ring", "burst[:zigzag]",
                                            "attention2d[:RxC]", "ulysses", "usp:U", "allgather", "balanced",
                                            "balanced-split", "mesh:UxRxC[:block|zigzag|striped[:B]|chunked]",
                                            "placed"});
  CHECK(NamedSchedule{"mine", {"N", "M", {"x"}}, {}, {}}.grammar() == "mine:N[:M|x]");
}

TEST_CASE("a schedule of one's own is used by its name") {
  const auto resolve = [](std::string_view, const Problem&, int) -> RecipeOrReason {
    const auto everything_at_home = [](std::shared_ptr<const Tiles> tiles, int) {
      return mesh(tiles, {1, 1, tiles->ranks()});
    };
    return Recipe{"mine", {}, 1, Mode::overlapped, everything_at_home};
  };
  register_schedule({"mine", {}, resolve});
  CHECK(schedules().back().name == "mine");
  CHECK(grid_of("mine", problem_of(8), 2) == grid_of("burst", problem_of(8), 2));
  CHECK(all_schedule_names(problem_of(8), 2).back() == "mine");
  CHECK_THROWS_WITH(register_schedule({"mine", {}, resolve}), contains_text("already registered"));
  CHECK_THROWS_AS(register_schedule({"a:b", {}, resolve}), Error);
}
