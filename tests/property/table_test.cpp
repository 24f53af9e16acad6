/// Random problems laid over random numbers of ranks: every position has one owner, every live tile one place.

#include <map>
#include <memory>
#include <tuple>

#include "catch.hpp"
#include "support/problems.hpp"
#include "support/sanitized.hpp"

using namespace distattn;
using test::Random;
using test::random_problem;
using test::recipes_for;

namespace {

void require_each_live_tile_once(const Table& table, const Tiles& tiles) {
  std::map<std::tuple<int, SegmentId, SegmentId>, int> times;
  for (int step = 0; step < table.steps; ++step)
    for (Rank rank = 0; rank < tiles.ranks(); ++rank)
      table.tiles(step, rank, [&](const Tile& tile) { ++times[{tile.group, tile.query, tile.key}]; });
  std::size_t live = 0;
  for (std::size_t i = 0; i < tiles.sharding().queries.size(); ++i)
    for (std::size_t j = 0; j < tiles.sharding().keys.size(); ++j) {
      const auto query = static_cast<SegmentId>(i), key = static_cast<SegmentId>(j);
      REQUIRE(tiles.live(query, key) == (tiles.pairs(query, key) > 0));
      if (tiles.live(query, key)) ++live;
      for (int group = 0; group < tiles.groups(); ++group) {
        const auto found = times.find({group, query, key});
        REQUIRE((found == times.end() ? 0 : found->second) == (tiles.live(query, key) ? 1 : 0));
      }
    }
  REQUIRE(times.size() == live * static_cast<std::size_t>(tiles.groups()));
}

}  // namespace

TEST_CASE("every layout gives each position to one rank") {
  INFO("seed " << test::seed());
  Random random(test::seed());
  for (int n = 0; n < 2000; ++n) {
    const Problem problem = random_problem(random);
    const int ranks = static_cast<int>(random.between(1, 20));
    const LayoutKind kind =
        random.pick({LayoutKind::block, LayoutKind::zigzag, LayoutKind::striped, LayoutKind::chunked});
    const Layout layout{kind, kind == LayoutKind::block ? static_cast<int>(random.between(1, 3)) : 1};
    const Sharding sharding = shard(problem, ranks, layout);
    INFO("case " << n << ": " << name_of(kind) << " on " << ranks << " ranks");
    REQUIRE_NOTHROW(check(sharding));
    for (const auto& [segments, first] :
         {std::pair{&sharding.queries, problem.first_query()}, std::pair{&sharding.keys, std::int64_t{0}}}) {
      std::vector<std::int64_t> all;
      for (Rank rank = 0; rank < ranks; ++rank)
        for (const std::int64_t position : positions(*segments, rank)) all.push_back(position);
      std::sort(all.begin(), all.end());
      REQUIRE(all.size() == static_cast<std::size_t>(problem.seq_kv - first));
      for (std::size_t i = 0; i < all.size(); ++i) REQUIRE(all[i] == first + static_cast<std::int64_t>(i));
    }
  }
}

TEST_CASE("tiles count what the mask counts, by whatever way") {
  INFO("seed " << test::seed());
  Random random(test::seed());
  for (int n = 0; n < 2000; ++n) {
    Problem problem = random_problem(random);
    if (random.one_in(2)) problem.mask = {.documents = test::random_documents(random, problem.seq_kv)};
    const int ranks = static_cast<int>(random.between(1, 12));
    const Tiles tiles(shard(problem, ranks, {random.one_in(4) ? LayoutKind::zigzag : LayoutKind::striped}));
    INFO("case " << n);
    for (std::size_t i = 0; i < tiles.sharding().queries.size(); ++i)
      for (std::size_t j = 0; j < tiles.sharding().keys.size(); ++j) {
        const auto query = static_cast<SegmentId>(i), key = static_cast<SegmentId>(j);
        REQUIRE(tiles.pairs(query, key) == tiles.mask().pairs(tiles.query(query).run, tiles.key(key).run));
        REQUIRE(tiles.live(query, key) == (tiles.pairs(query, key) > 0));
      }
  }
}

TEST_CASE("every schedule computes each live tile once") {
  INFO("seed " << test::seed());
  Random random(test::seed());
  for (int n = 0; n < (is_sanitized ? 30 : 150); ++n) {
    const Problem problem = random_problem(random);
    const int ranks = static_cast<int>(random.between(1, 16));
    const int node_size = random.one_in(2) ? 0 : static_cast<int>(random.between(1, 8));
    for (const Recipe& recipe : recipes_for(problem, ranks, random)) {
      const auto tiles = std::make_shared<const Tiles>(shard(problem, ranks, recipe.layout, recipe.groups));
      INFO("case " << n << ": " << recipe.name << " on " << ranks << " ranks, " << node_size << " a node");
      require_each_live_tile_once(recipe.table(tiles, node_size), *tiles);
    }
  }
}

TEST_CASE("head groups hold every query head once, with its key head") {
  for (int kv_heads = 1; kv_heads <= 6; ++kv_heads)
    for (int per_kv = 1; per_kv <= 6; ++per_kv)
      for (int groups = 1; groups <= kv_heads * per_kv; ++groups) {
        const int heads = kv_heads * per_kv;
        int next = 0;
        for (const HeadGroup& group : head_groups(heads, kv_heads, groups)) {
          REQUIRE(group.q0 == next);
          REQUIRE((group.q_count == heads / groups || group.q_count == heads / groups + 1));
          REQUIRE(group.kv0 == group.q0 / per_kv);
          REQUIRE(group.kv0 + group.kv_count - 1 == (group.q0 + group.q_count - 1) / per_kv);
          next += group.q_count;
        }
        REQUIRE(next == heads);
      }
}
