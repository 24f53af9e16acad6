#include <algorithm>
#include <memory>

#include "catch.hpp"
#include "distattn/lower.hpp"
#include "distattn/table.hpp"
#include "unit/sketch_builder.hpp"

using namespace distattn;
using distattn::test::run;
using distattn::test::SketchBuilder;
using distattn::test::slow_machine;

TEST_CASE("tiles cost seconds of their own and take what their kernels compute", "[simulate]") {
  const std::vector<ProgramSketch> ranks{SketchBuilder(0).compute_tiles(0, 3, 5, 2)};
  CHECK(run(ranks, slow_machine(1, 1)).seconds == Approx(5));
  Machine machine = slow_machine(1, 1);
  machine.tiles.points[Pass::forward] = {{8, 0.25}};
  CHECK(run(ranks, machine).seconds == Approx(5.5));
  machine.tiles.pair_s[Pass::forward] = 0.1;
  CHECK(run(ranks, machine).seconds == Approx(6));
}

TEST_CASE("a tile is as fast as the square one with as many pairs a row", "[simulate]") {
  const auto side = [](double pairs, std::int64_t tiles, std::int32_t queries, std::int32_t keys, Coverage coverage) {
    return ProgramSketch::Work{pairs, pairs, tiles, queries, keys, coverage}.side(RatesBy::tile);
  };
  CHECK(side(4 * 64 * 64, 4, 64, 64, Coverage::full) == 64);
  CHECK(side(64 * 192, 1, 64, 192, Coverage::full) == 96);
  CHECK(side(64 * 64 / 2, 1, 64, 64, Coverage::partial) == 64);
  CHECK(side(3 * 256 * 64, 3, 256, 256, Coverage::partial) == 128);  // a window, or documents
  CHECK(side(0, 1, 64, 64, Coverage::partial) == 1);  // a program of the user's own may attend to nothing
  Machine machine = slow_machine(1, 1);
  const double pair = flops_per_pair(8, 8, Pass::forward);
  const RateCurve rate{{{512, pair}, {1024, 2 * pair}}};
  machine.rates[DType::fp32].fill(KernelRates{rate, rate});
  CHECK(run({SketchBuilder(0).compute_tiles(0, 1024 * 1024, 8, 1)}, machine).seconds == Approx(4));
  CHECK(run({SketchBuilder(0).compute_tiles(0, 512 * 1024, 8, 1)}, machine).seconds == Approx(8));
}

TEST_CASE("a launch is as fast as the square with as many pairs for each of its rows", "[simulate]") {
  Machine machine = slow_machine(1, 1);
  const double pair = flops_per_pair(8, 8, Pass::forward);
  machine.rates[DType::fp32].fill(KernelRates{{{{512, pair}, {1024, 2 * pair}}}, {{{512, pair}, {1024, 2 * pair}}}});
  // Four tiles of two query segments and two key segments: alone 512 tokens a side, together 1024.
  ProgramSketch four = SketchBuilder(0).compute_tiles(0, 4 * 512 * 512, 8, 4);
  four.works[0].queries = four.works[0].keys = 512;
  four.works[0].rows = 4 * 512;
  CHECK(run({four}, machine).seconds == Approx(8));
  machine.rates_by = RatesBy::launch;
  CHECK(run({four}, machine).seconds == Approx(4));
  four.works[0].rows *= 2;  // four documents have nothing in common
  CHECK(run({four}, machine).seconds == Approx(8));
  machine.tiles.launch_s[Pass::forward] = 3;  // once for all of them, and whatever their threads
  CHECK(run({four}, machine).seconds == Approx(11));
  machine.cores = 2;
  CHECK(run({four}, machine, 2).seconds == Approx(7));
  CHECK(run({SketchBuilder(0).touch(0, 1)}, machine).seconds == 0);  // merges are no launch of tiles
}

TEST_CASE("rows that several tiles of a step have count once in it", "[simulate]") {
  Problem problem;
  problem.seq_q = problem.seq_kv = 96;
  problem.heads = 4;
  problem.kv_heads = 2;
  problem.head_dim = problem.value_dim = 128;
  problem.mask = full_mask();
  const auto tiles = std::make_shared<const Tiles>(shard(problem, 4, {LayoutKind::block}, 1));
  const auto works_of = [&](Pass pass, int steps, bool of_one_query, bool of_one_key) {
    const Table table{steps, [&](int step, Rank rank, const Table::Sink& sink) {
                        for (Rank other = 0; other < 4; ++other) {
                          if (steps > 1 && other != step) continue;
                          emit_tiles(*tiles, 0, of_one_query ? rank : other, of_one_key ? rank : other, sink);
                        }
                      }};
    const Lowering lowering("by hand", tiles, table, pass, Mode::overlapped, {});
    return sketch(lowering.outline(), *tiles, 1, lowering.program(1)).works;
  };
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    const auto apart = works_of(pass, 4, true, false);
    CHECK(apart.size() == 4);
    for (const auto& work : apart) {
      CHECK(work.rows == 4 * (24 + 24));
      CHECK(work.side(RatesBy::launch) == 24);
    }
    for (const bool of_one_query : {true, false}) {  // a row of tiles, and a column
      const auto together = works_of(pass, 1, of_one_query, !of_one_query);
      REQUIRE(together.size() == 1);
      CHECK(together[0].rows == Approx(4 * (24 + 96)));
      CHECK(together[0].side(RatesBy::launch) == Approx(2. * 24 * 96 / (24 + 96)));
      CHECK(together[0].side(RatesBy::tile) == 24);
    }
  }
}
