#include "distattn/layout.hpp"

#include "catch.hpp"
#include "distattn/dealing.hpp"
#include "distattn/error.hpp"

using namespace distattn;

namespace {

Problem problem_of(std::int64_t seq_q, std::int64_t seq_kv, Mask mask = causal_mask()) {
  return {.seq_q = seq_q,
          .seq_kv = seq_kv,
          .heads = 8,
          .kv_heads = 2,
          .head_dim = 8,
          .value_dim = 8,
          .mask = std::move(mask)};
}

/// How many queries of residue i see a key of residue j in some document, and how many of these are seen.
BandIndex::Reach reach_in(const std::vector<std::int64_t>& documents, int ranks, int i, int j) {
  const auto first_from = [&](std::int64_t at, int residue) { return at + ((residue - at) % ranks + ranks) % ranks; };
  BandIndex::Reach reach;
  for (std::size_t d = 0; d + 1 < documents.size(); ++d) {
    const std::int64_t begin = documents[d], end = documents[d + 1];
    const std::int64_t first_key = first_from(begin, j);
    std::int64_t last_query = -1;
    for (std::int64_t q = first_from(begin, i); q < end; q += ranks) {
      reach.queries += first_key <= q ? 1 : 0;
      last_query = q;
    }
    for (std::int64_t k = first_key; k < end; k += ranks) reach.keys += k <= last_query ? 1 : 0;
  }
  return reach;
}

}  // namespace

TEST_CASE("block and zigzag cut where the model cuts") {
  CHECK(block_segments(10, 4) == std::vector<Segment>{{{0, 2, 1}, 0}, {{2, 3, 1}, 1}, {{5, 2, 1}, 2}, {{7, 3, 1}, 3}});
  CHECK(block_segments(5, 2, 2) ==
        std::vector<Segment>{{{0, 1, 1}, 0}, {{1, 1, 1}, 0}, {{2, 1, 1}, 1}, {{3, 2, 1}, 1}});
  CHECK(zigzag_segments(8, 2) == std::vector<Segment>{{{0, 2, 1}, 0}, {{2, 2, 1}, 1}, {{4, 2, 1}, 1}, {{6, 2, 1}, 0}});
  CHECK(striped_segments(7, 3) == std::vector<Segment>{{{0, 3, 3}, 0}, {{1, 2, 3}, 1}, {{2, 2, 3}, 2}});
  CHECK(block_segments(1, 3)[2].run == Run{0, 1, 1});
  const std::int64_t huge = std::int64_t{1} << 60;
  CHECK(block_segments(huge, 4096).back().run.at(huge / 4096 - 1) == huge - 1);
}

TEST_CASE("blocks are dealt in turn, and tokens stay where they are while the sequence grows") {
  CHECK(dealt_segments(11, 3, 4) == std::vector<Segment>{{{0, 4, 1}, 0}, {{4, 4, 1}, 1}, {{8, 3, 1}, 2}});
  CHECK(dealt_segments(9, 2, 2) ==
        std::vector<Segment>{{{0, 2, 1}, 0}, {{2, 2, 1}, 1}, {{4, 2, 1}, 0}, {{6, 2, 1}, 1}, {{8, 1, 1}, 0}});
  CHECK(dealt_segments(5, 3, 8) == std::vector<Segment>{{{0, 5, 1}, 0}, {{5, 0, 1}, 1}, {{5, 0, 1}, 2}});
  CHECK(dealt_segments(1000, 1, 2) == std::vector<Segment>{{{0, 1000, 1}, 0}});
  for (const std::int64_t block : {2, 3, 7, 16}) {
    for (const int ranks : {2, 3, 5}) {
      const Dealing dealing{block, ranks};
      for (std::int64_t tokens = 1; tokens < 90; ++tokens) {
        const Sharding now = shard(problem_of(tokens, tokens), ranks, {LayoutKind::striped, 1, {}, block});
        const Sharding next = shard(problem_of(tokens + 1, tokens + 1), ranks, now.layout);
        check(now);
        for (Rank rank = 0; rank < ranks; ++rank) {
          std::vector<std::int64_t> before = positions(now.keys, rank);
          CHECK(std::ssize(before) == dealing.stored(tokens, rank));
          if (dealing.owner(tokens) == rank) before.push_back(tokens);
          CHECK(positions(next.keys, rank) == before);
        }
      }
    }
  }
}

TEST_CASE("layouts have names") {
  CHECK(layout_named("striped:64") == Layout{LayoutKind::striped, 1, {}, 64});
  CHECK(layout_named("striped:1") == Layout{LayoutKind::striped});
  CHECK(layout_named("zigzag") == Layout{LayoutKind::zigzag});
  CHECK_FALSE(layout_named("given"));
  CHECK_FALSE(layout_named(""));
  CHECK(to_string(Layout{LayoutKind::striped, 1, {}, 64}) == "striped:64");
  for (const char* name : {"striped:", "striped:0", "striped:-3", "striped:x", "striped:64 ", "striped:99999999999999"})
    CHECK_THROWS_WITH(layout_named(name), contains_text("write striped:64"));
}

TEST_CASE("chunked gives every rank four chunks and even causal work") {
  const BandIndex mask(bands_of(causal_mask()));
  const std::vector<Segment> segments = chunked_segments(64, 4, mask);
  REQUIRE(segments.size() == 16);
  std::vector<int> owned(4);
  std::vector<std::int64_t> work(4);
  for (const Segment& segment : segments) {
    ++owned[static_cast<std::size_t>(segment.owner)];
    work[static_cast<std::size_t>(segment.owner)] += mask.pairs(segment.run, {0, 64, 1});
  }
  CHECK(owned == std::vector<int>{4, 4, 4, 4});
  for (const std::int64_t w : work) CHECK(w == 64 * 65 / 2 / 4);
}

TEST_CASE("segments are cut at a position that they reach across, and only there") {
  CHECK(cut_segments({{{0, 5, 1}, 0}, {{5, 5, 1}, 1}}, 3) ==
        std::vector<Segment>{{{0, 3, 1}, 0}, {{3, 2, 1}, 0}, {{5, 5, 1}, 1}});
  CHECK(cut_segments({{{1, 3, 4}, 1}}, 5) == std::vector<Segment>{{{1, 1, 4}, 1}, {{5, 2, 4}, 1}});
  CHECK(cut_segments({{{0, 5, 1}, 0}}, 5).size() == 1);
  CHECK(cut_segments({{{0, 5, 1}, 0}}, 0).size() == 1);
  CHECK(cut_segments({{{0, 0, 1}, 0}}, 0).size() == 1);
}

TEST_CASE("head groups are uneven where they must be, and share key heads") {
  const std::vector<HeadGroup> uneven = head_groups(33, 33, 8);
  CHECK(uneven[0] == HeadGroup{0, 5, 0, 5});
  CHECK(uneven[1] == HeadGroup{5, 4, 5, 4});
  CHECK(uneven[7] == HeadGroup{29, 4, 29, 4});
  CHECK(head_groups(12, 4, 3) == std::vector<HeadGroup>{{0, 4, 0, 2}, {4, 4, 1, 2}, {8, 4, 2, 2}});
  CHECK(head_groups(8, 2, 4) == std::vector<HeadGroup>{{0, 2, 0, 1}, {2, 2, 0, 1}, {4, 2, 1, 1}, {6, 2, 1, 1}});
  CHECK_THROWS_WITH(head_groups(8, 2, 9), contains_text("9 head groups of 8 heads"));
  CHECK_THROWS_AS(head_groups(8, 2, 0), Error);
}

TEST_CASE("few queries hold the last positions") {
  const Sharding sharding = shard(problem_of(4, 16), 2, {});
  CHECK(sharding.queries == std::vector<Segment>{{{12, 2, 1}, 0}, {{14, 2, 1}, 1}});
  CHECK(sharding.keys == std::vector<Segment>{{{0, 8, 1}, 0}, {{8, 8, 1}, 1}});
  CHECK(positions(sharding.queries, 1) == std::vector<std::int64_t>{14, 15});
  const Sharding more = shard(problem_of(6, 4), 2, {});
  CHECK(positions(more.queries, 0) == std::vector<std::int64_t>{-2, -1, 0});
}

TEST_CASE("sinks travel alone: query and key segments are both cut") {
  Mask mask{.left = 3, .sinks = 3};
  const Sharding sharding = shard(problem_of(16, 16, mask), 4, {});
  REQUIRE(sharding.keys.size() == 5);
  CHECK(sharding.keys[0] == Segment{{0, 3, 1}, 0});
  CHECK(sharding.keys[1] == Segment{{3, 1, 1}, 0});
  CHECK(sharding.queries == sharding.keys);
  CHECK(shard(problem_of(4, 16, mask), 4, {}).queries.size() == 4);
}

TEST_CASE("what cannot be sharded is refused") {
  CHECK_THROWS_WITH(shard(problem_of(16, 16), 0, {}), contains_text("0 ranks"));
  CHECK_THROWS_WITH(shard(problem_of(16, 16), 2, {LayoutKind::zigzag, 2}), contains_text("only block"));
  CHECK_THROWS_AS(shard(problem_of(16, 16), 2, {}, 9), Error);
  CHECK_THROWS_WITH(shard(problem_of(16, 16), 2, {LayoutKind::zigzag, 1, {}, 4}), contains_text("striped alone"));
  CHECK_THROWS_WITH(shard(problem_of(16, 16), 2, {LayoutKind::striped, 1, {}, 0}), contains_text("of 1 to"));
  CHECK_THROWS_WITH(shard(problem_of(1 << 20, 1 << 20), 2, {LayoutKind::striped, 1, {}, 16}),
                    contains_text("deal out longer blocks"));
}

TEST_CASE("tiles know who owns what and what is live") {
  const Tiles tiles(shard(problem_of(16, 16), 4, {LayoutKind::zigzag}));
  CHECK(tiles.ranks() == 4);
  CHECK(tiles.groups() == 1);
  REQUIRE(tiles.queries_of(1).size() == 2);
  CHECK(tiles.queries_of(1)[0] == SegmentId{1});
  CHECK(tiles.queries_of(1)[1] == SegmentId{6});
  CHECK_FALSE(tiles.sees_future());
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j) {
      CHECK(tiles.live(SegmentId{i}, SegmentId{j}) == (j <= i));
      CHECK(tiles.pairs(SegmentId{i}, SegmentId{j}) == (j < i ? 4 : j == i ? 3 : 0));
    }
}

TEST_CASE("tiles of a stride under many documents are estimated, never too low in what they reach") {
  Problem problem;
  for (std::int64_t length = 1, at = 0; problem.mask.documents.size() < 4000; length = length % 150 + 7) {
    problem.mask.documents.push_back(at);
    at += length;
  }
  problem.seq_q = problem.seq_kv = problem.mask.documents.back();
  problem.head_dim = problem.value_dim = 8;
  constexpr int ranks = 64, block = 16;
  const Tiles tiles(shard(problem, ranks, {LayoutKind::striped}));
  double computed = 0, exactly = 0;
  for (int i = 0; i < ranks; i += 7) {
    for (int j = 0; j < ranks; j += 5) {
      const auto query = static_cast<SegmentId>(i), key = static_cast<SegmentId>(j);
      const Run &queries = tiles.query(query).run, &keys = tiles.key(key).run;
      const BandIndex::Reach reach = tiles.reach(query, key), exact = reach_in(problem.mask.documents, ranks, i, j);
      CHECK((exact.queries <= reach.queries && reach.queries <= queries.count));
      CHECK((exact.keys <= reach.keys && reach.keys <= keys.count));
      CHECK(tiles.computed_pairs(query, key, 1) == tiles.pairs(query, key));
      CHECK(tiles.computed_pairs(query, key, block) >= tiles.pairs(query, key));
      computed += static_cast<double>(tiles.computed_pairs(query, key, block));
      exactly += static_cast<double>(tiles.mask().computed_pairs(queries, keys, block));
    }
  }
  CHECK(computed > exactly / 2);
  CHECK(computed < exactly * 2);
}

TEST_CASE("empty segments have no live tile") {
  const Tiles tiles(shard(problem_of(3, 3, full_mask()), 8, {}));
  int live = 0;
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j) live += tiles.live(SegmentId{i}, SegmentId{j}) ? 1 : 0;
  CHECK(live == 9);
  CHECK(tiles.sees_future());
}

TEST_CASE("more tiles than can be planned are refused, named by ranks and layout") {
  const Problem problem = problem_of(1 << 20, 1 << 20);
  const auto refusal = [&](int ranks, LayoutKind layout) -> std::string {
    try {
      const Tiles tiles(shard(problem, ranks, {layout}));
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      return error.what();
    }
    return "";
  };
  CHECK(refusal(2048, LayoutKind::block).empty());
  CHECK(refusal(65536, LayoutKind::block).starts_with("65536 ranks make 65536 segments of queries and 65536 of keys"));
  CHECK(refusal(1 << 14, LayoutKind::zigzag).find("zigzag layouts end at") != std::string::npos);
}
