#include <numeric>
#include <random>

#include "catch.hpp"
#include "distattn/error.hpp"
#include "distattn/plan.hpp"
#include "unit/sketch_builder.hpp"

using namespace distattn;
using distattn::test::run;
using distattn::test::SketchBuilder;
using distattn::test::slow_machine;

namespace {

Problem attention(std::int64_t tokens, int heads, int kv_heads) {
  Problem problem;
  problem.seq_q = problem.seq_kv = tokens;
  problem.heads = heads;
  problem.kv_heads = kv_heads;
  problem.head_dim = problem.value_dim = 128;
  problem.dtype = DType::bf16;
  return problem;
}

double predict(const Problem& problem, int ranks, const std::string& name, Pass pass, Mode mode, Routes routes,
               const Machine& machine) {
  const auto planned = or_refuse(plan(problem, ranks, {name, Passes::both, mode, routes.node_size, routes.ahead}));
  return distattn::predict(planned, &machine)[static_cast<std::size_t>(pass)].predicted_s;
}

/// The machine of the routed figures, every rank with its part of the node's link as in the executable model.
Machine model_machine() {
  Machine machine = slow_machine(4, 8);
  machine.near = {300e9, 5e-6};
  machine.far = {12.5e9 / 8, 10e-6};
  const RateCurve rate{{{0, 400e12}}};
  machine.rates[DType::bf16].fill(KernelRates{rate, rate});
  return machine;
}

}  // namespace

TEST_CASE("straight routes cross a machine's nodes too", "[simulate]") {
  const auto far = [](int nodes, int ranks_per_node, Routes routes) {
    Problem problem = attention(96, 4, 4);
    problem.dtype = DType::fp32;
    const Machine machine = slow_machine(nodes, ranks_per_node);
    const ScheduleRequest request{"ring", Passes::forward, {}, routes.node_size, routes.ahead};
    const Counts counts = distattn::predict(or_refuse(plan(problem, 4, request)), &machine).front().counts;
    return std::accumulate(counts.bytes_far.begin(), counts.bytes_far.end(), std::int64_t{0});
  };
  const std::int64_t shard_bytes = 2 * 24 * 4 * 128 * 4;  // K and V of a rank, in fp32
  CHECK(far(1, 4, {}) == 0);
  CHECK(far(2, 2, {}) == 4 * shard_bytes);  // causal: the keys of two ranks go to each of the two behind them
  CHECK(far(2, 2, {2, 0}) == 2 * shard_bytes);
  CHECK(far(4, 1, {}) == 6 * shard_bytes);
}

TEST_CASE("a sketch counts tiles and what blocks of queries meet", "[simulate]") {
  const auto recipe = std::get<Recipe>(resolve_schedule("ring", attention(96, 4, 2), 2));
  const auto tiles = std::make_shared<const Tiles>(shard(attention(96, 4, 2), 2, recipe.layout, recipe.groups));
  const Lowering lowering(recipe.name, tiles, recipe.table(tiles, 0), Pass::forward, recipe.mode, {});
  const ProgramSketch sketched = sketch(lowering.outline(), *tiles, 1, lowering.program(1), 16);
  REQUIRE(sketched.works.size() == 2);
  CHECK(sketched.works[0].tiles == 4);
  CHECK(sketched.works[0].pairs == 4 * 48 * 49 / 2);
  CHECK(sketched.works[0].computed_pairs == 4 * 16 * (16 + 32 + 48));
  CHECK(sketched.works[1].computed_pairs == sketched.works[1].pairs);
  CHECK(sketched.works[0].key_bytes == 48 * 2 * (128 + 128) * 2);  // of key heads
  CHECK(sketched.works[1].key_bytes == sketched.works[0].key_bytes);
}

TEST_CASE("few queries take their pairs, and their keys at a rate that falls where a node reads many", "[simulate]") {
  Machine machine = slow_machine(1, 2);
  const auto seconds = [&](std::int32_t queries, int ranks) {
    std::vector<ProgramSketch> sketches;
    for (Rank r = 0; r < ranks; ++r) sketches.push_back(SketchBuilder(r).compute_few(0, 10, queries, 100));
    return run(sketches, machine).seconds;
  };
  CHECK(seconds(4, 1) == Approx(20));  // like any other: pairs that are met, a second each
  machine.few.queries = 8;
  CHECK(seconds(4, 1) == Approx(20));
  machine.few.rates[DType::fp32] = {2 * flops_per_pair(8, 8, Pass::forward), {{{1, 4}, {100, 4}, {200, 2}}}};
  CHECK(seconds(4, 1) == Approx(10 / 2. + 100 / 4.));
  CHECK(seconds(4, 2) == Approx(10 / 2. + 100 / 2.));
  CHECK(seconds(9, 1) == Approx(20));
  machine.cores = 2;
  machine.memory_bytes_per_s = 1;
  CHECK(seconds(4, 1) == Approx(10 / 2. + 100 / 4. + 20));  // keys are not brought twice
  CHECK(seconds(9, 1) == Approx(20 + 120));
}

TEST_CASE("a sketch counts the pairs of many heads over half a billion tokens", "[simulate]") {
  constexpr std::int64_t tokens = std::int64_t{1} << 29;
  const auto recipe = std::get<Recipe>(resolve_schedule("ring", attention(tokens, 64, 8), 1));
  const auto tiles = std::make_shared<const Tiles>(shard(attention(tokens, 64, 8), 1, recipe.layout, recipe.groups));
  const Lowering lowering(recipe.name, tiles, recipe.table(tiles, 0), Pass::forward, recipe.mode, {});
  const ProgramSketch sketched = sketch(lowering.outline(), *tiles, 0, lowering.program(0));
  REQUIRE(sketched.works.size() == 1);
  CHECK(sketched.works[0].pairs == Approx(64.0 * tokens * tokens / 2));
  CHECK(sketched.works[0].side(RatesBy::tile) == Approx(tokens));
}

TEST_CASE("tiles touch the rows that see a key, the keys that are seen, and twice what they add to", "[simulate]") {
  const auto touched = [](Pass pass, Mask mask) {
    Problem problem = attention(96, 4, 2);
    problem.mask = std::move(mask);
    const auto recipe = std::get<Recipe>(resolve_schedule("ring", problem, 2));
    const auto tiles = std::make_shared<const Tiles>(shard(problem, 2, recipe.layout, recipe.groups));
    const Lowering lowering(recipe.name, tiles, recipe.table(tiles, 0), pass, recipe.mode, {});
    std::vector<std::int64_t> bytes;
    for (const ProgramSketch::Step& step : sketch(lowering.outline(), *tiles, 1, lowering.program(1)).steps) {
      if (step.lane == Lane::compute) bytes.push_back(step.tile_bytes);
    }
    return bytes;
  };
  const std::int64_t q = 48 * 4, k = 48 * 2, half = 128 * 2, full = 128 * 4;  // rows of all heads; bf16 and fp32 rows
  const std::int64_t o = full + 4 + 2;                                        // and lse, in two parts
  CHECK(touched(Pass::forward, causal_mask()) ==
        std::vector<std::int64_t>{q * half + k * 2 * half + q * o, q * half + k * 2 * half + 2 * q * o});
  const std::int64_t shared = 2 * 128 * 4;  // by key heads
  const std::int64_t gradients_in = q * (2 * half + 4 + 2 + 4) + shared,
                     key_gradients = k * 2 * full;  // q, dO, lse, delta
  const std::int64_t dq = full + 4 + 4;             // and sums and squares of what it leaves out
  CHECK(touched(Pass::backward, causal_mask()) ==
        std::vector<std::int64_t>{gradients_in + k * 2 * half + q * dq + key_gradients,
                                  gradients_in + k * 2 * half + 2 * q * dq + key_gradients});
  Mask window = causal_mask();
  window.left = 12;  // of rank 1's 48 queries, 12 see 12 keys of rank 0
  CHECK(touched(Pass::forward, window)[1] == (q * half + k * 2 * half + 2 * q * o) / 4);
}

TEST_CASE("a lane runs its steps one after the other, lanes side by side", "[simulate]") {
  const Timeline timeline = run({SketchBuilder(0).compute(1, 3).exchange(1, {{4, 1}}, {}).compute(2, 5),
                                 SketchBuilder(1).exchange(1, {}, {0}).compute(2, 1, {StepId{0}})},
                                slow_machine(1, 2));
  CHECK(timeline.seconds == 8);
  REQUIRE(timeline.spans.size() == 5);
  CHECK(timeline.spans[3].start_s == 0);
  CHECK(timeline.spans[3].end_s == 4);
  CHECK(timeline.spans[4].start_s == 4);
  CHECK(timeline.spans[4].rank == 1);
}

TEST_CASE("a message waits until both ends have begun", "[simulate]") {
  const Timeline timeline = run(
      {SketchBuilder(0).exchange(1, {{4, 1}}, {}), SketchBuilder(1).compute(0, 10).exchange(1, {}, {0}, {StepId{0}})},
      slow_machine(1, 2));
  CHECK(timeline.seconds == 14);
  CHECK(timeline.spans[0].end_s == 14);
}

TEST_CASE("a port carries one message at a time, and latency keeps it free", "[simulate]") {
  Machine machine = slow_machine(1, 3);
  machine.near.latency_s = 100;
  const std::vector<ProgramSketch> fan_out = {SketchBuilder(0).exchange(0, {{2, 1}, {3, 2}}, {}),
                                              SketchBuilder(1).receive(0, {0}), SketchBuilder(2).receive(0, {0})};
  CHECK(run(fan_out, machine).seconds == 105);
  const std::vector<ProgramSketch> fan_in = {SketchBuilder(0).receive(0, {1, 2}),
                                             SketchBuilder(1).exchange(0, {{2, 0}}, {}),
                                             SketchBuilder(2).exchange(0, {{3, 0}}, {})};
  CHECK(run(fan_in, machine).seconds == 105);
}

TEST_CASE("an all-to-all fills every port all the time", "[simulate]") {
  constexpr int ranks = 5;
  std::vector<ProgramSketch> all;
  for (Rank r = 0; r < ranks; ++r) {
    std::vector<ProgramSketch::JoinedMessage> sends;
    std::vector<Rank> receives;
    for (Rank peer = 0; peer < ranks; ++peer) {
      if (peer == r) continue;
      sends.push_back({7, peer});
      receives.push_back(peer);
    }
    all.push_back(SketchBuilder(r).exchange(0, sends, receives));
  }
  CHECK(run(all, slow_machine(1, ranks)).seconds == 28);
}

TEST_CASE("messages between nodes take the far link, of the rank or of the node", "[simulate]") {
  const std::vector<ProgramSketch> ranks = {SketchBuilder(0).exchange(0, {{2, 2}}, {}),
                                            SketchBuilder(1).exchange(0, {{2, 3}}, {}),
                                            SketchBuilder(2).receive(0, {0}), SketchBuilder(3).receive(0, {1})};
  CHECK(run(ranks, slow_machine(2, 2)).seconds == Approx(20));
  CHECK(run(ranks, slow_machine(2, 2, LinkOwner::node)).seconds == Approx(40));
  CHECK(run(ranks, slow_machine(1, 4)).seconds == 2);
}

TEST_CASE("a rank alone on its node's link has all of it", "[simulate]") {
  const std::vector<ProgramSketch> ranks = {SketchBuilder(0).exchange(0, {{2, 2}}, {}), SketchBuilder(1),
                                            SketchBuilder(2).receive(0, {0}), SketchBuilder(3)};
  CHECK(run(ranks, slow_machine(2, 2, LinkOwner::node)).seconds == Approx(20));
}

TEST_CASE("a shared link does not make one rank wait for another's delay", "[simulate]") {
  // Taking turns, rank 1's message would leave only after rank 0's, which begins at 100.
  const std::vector<ProgramSketch> ranks = {SketchBuilder(0).compute(0, 100).exchange(1, {{2, 2}}, {}, {StepId{0}}),
                                            SketchBuilder(1).exchange(1, {{2, 3}}, {}).compute(2, 60, {StepId{0}}),
                                            SketchBuilder(2).receive(1, {0}), SketchBuilder(3).receive(1, {1})};
  CHECK(run(ranks, slow_machine(2, 2, LinkOwner::node)).seconds == Approx(140));
}

TEST_CASE("ranks on cores share them evenly", "[simulate]") {
  Machine machine = slow_machine(1, 1);
  machine.cores = 2;
  const std::vector<ProgramSketch> ranks = {SketchBuilder(0).compute(0, 4), SketchBuilder(1).compute(0, 4),
                                            SketchBuilder(2).compute(0, 8), SketchBuilder(3).compute(0, 8)};
  // At half speed the first two end at 8; then the others, half done, have a core each.
  const Timeline timeline = run(ranks, machine);
  CHECK(timeline.spans[0].end_s == Approx(8));
  CHECK(timeline.seconds == Approx(12));
  CHECK(run({ranks[0], ranks[1]}, machine).seconds == Approx(4));
  CHECK(run({ranks[0], ranks[1]}, machine, 2).seconds == Approx(4));
  CHECK(run({ranks[0]}, machine, 2).seconds == Approx(2));
}

TEST_CASE("merges take the time of their memory traffic", "[simulate]") {
  Machine machine = slow_machine(1, 1);
  CHECK(run({SketchBuilder(0).touch(0, 30)}, machine).seconds == 0);
  machine.memory_bytes_per_s = 10;
  CHECK(run({SketchBuilder(0).touch(0, 30)}, machine).seconds == 3);
}

TEST_CASE("a rank packs its inputs first and unpacks its results last", "[simulate]") {
  Machine machine = slow_machine(1, 2);
  machine.memory_bytes_per_s = 10;
  ProgramSketch sketch = SketchBuilder(0).compute(0, 4);
  sketch.load = {20, 10};
  sketch.store = {50, 0};
  const Timeline timeline = run({sketch, SketchBuilder(1)}, machine);
  CHECK(timeline.spans[0].start_s == 2);
  CHECK(timeline.seconds == 11);
  machine.cores = 2;
  const Timeline in_place = run({sketch}, machine, 2);  // cores use what only tiles touch where it is
  CHECK(in_place.spans[0].start_s == Approx(0.5));
  CHECK(in_place.seconds == Approx(0.5 + 2 + 2.5));
}

TEST_CASE("a copy between ranks on cores keeps one busy", "[simulate]") {
  Machine machine = slow_machine(1, 1);
  machine.cores = 1;
  const std::vector<ProgramSketch> ranks = {SketchBuilder(0).exchange(0, {{4, 1}}, {}).compute(0, 10),
                                            SketchBuilder(1).receive(0, {0})};
  CHECK(run(ranks, machine).seconds == Approx(14));
  machine.cores = 2;
  CHECK(run(ranks, machine).seconds == Approx(10));
}

TEST_CASE("a copy takes as long as its core lets it", "[simulate]") {
  Machine machine = slow_machine(1, 1);
  machine.cores = 1;
  machine.near.latency_s = 0.5;  // of the exchange on each side
  const std::vector<ProgramSketch> ranks = {SketchBuilder(0).exchange(0, {{4, 1}}, {}),
                                            SketchBuilder(1).receive(0, {0}).compute(0, 10).compute(1, 1, {StepId{0}})};
  const Timeline timeline = run(ranks, machine);
  CHECK(timeline.spans[0].end_s == Approx(10));  // at half speed
  CHECK(timeline.seconds == Approx(16));
}

TEST_CASE("ranks on cores sleep and wake once an exchange, however many messages it has", "[simulate]") {
  Machine machine = slow_machine(1, 1);
  machine.cores = 1;
  machine.near.latency_s = 1;
  const auto all_to_all = [](Rank rank) {
    std::vector<ProgramSketch::JoinedMessage> sends;
    std::vector<Rank> receives;
    for (Rank other = 0; other < 4; ++other) {
      if (other == rank) continue;
      sends.push_back({2, other});
      receives.push_back(other);
    }
    return SketchBuilder(rank).exchange(0, sends, receives);
  };
  CHECK(run({all_to_all(0), all_to_all(1), all_to_all(2), all_to_all(3)}, machine).seconds == Approx(12 * 2 + 4));
  const auto one_by_one = [](Rank rank) {
    return SketchBuilder(rank)
        .exchange(0, {{2, (rank + 1) % 3}}, {(rank + 2) % 3})
        .exchange(1, {{2, (rank + 2) % 3}}, {(rank + 1) % 3});
  };
  CHECK(run({one_by_one(0), one_by_one(1), one_by_one(2)}, machine).seconds == Approx(6 * 2 + 6));
}

TEST_CASE("who begins second copies, one message after the other", "[simulate]") {
  Machine machine = slow_machine(1, 1);
  machine.cores = 4;
  const ProgramSketch gatherer = SketchBuilder(0).compute(0, 2).exchange(1, {}, {1, 2}, {StepId{0}});
  const Timeline timeline = run({gatherer, SketchBuilder(1).exchange(1, {{3, 0}}, {}),
                                 SketchBuilder(2).compute(0, 4).exchange(1, {{3, 0}}, {}, {StepId{0}})},
                                machine);
  // Rank 0 copies rank 1's message from 2 to 5, rank 2 its own from 4 to 7.
  CHECK(timeline.seconds == Approx(7));
  const Timeline together =
      run({gatherer, SketchBuilder(1).exchange(1, {{3, 0}}, {}), SketchBuilder(2).exchange(1, {{3, 0}}, {})}, machine);
  CHECK(together.seconds == Approx(8));
}

TEST_CASE("a machine that is too small is refused with its size", "[simulate]") {
  const std::vector<ProgramSketch> ranks = {SketchBuilder(0), SketchBuilder(1), SketchBuilder(2)};
  CHECK_THROWS_WITH(run(ranks, slow_machine(1, 2)), contains_text("3 ranks do not fit machine 'slow'"));
  CHECK_THROWS_AS(run(ranks, slow_machine(2, 1)), Error);
}

TEST_CASE("without routes, times are those of the executable model", "[simulate]") {
  // Routed figures, direct, milliseconds; the model moves latency through the port.
  const Problem problem = attention(32 * 8192, 32, 8);
  const auto [name, pass, model_ms] = GENERATE(table<std::string, Pass, double>({
      {"ring", Pass::forward, 668.78},
      {"zigzag-ring", Pass::forward, 667.71},
      {"balanced", Pass::forward, 1620.96},
      {"mesh:1x8x4:zigzag", Pass::forward, 376.82},
      {"mesh:8x4x1:zigzag", Pass::forward, 95.50},
      {"ring", Pass::backward, 1611.05},
      {"mesh:1x8x4:zigzag", Pass::backward, 500.64},
      {"mesh:4x4x2:zigzag", Pass::backward, 497.58},
  }));
  INFO(name << " " << name_of(pass));
  CHECK(predict(problem, 32, name, pass, Mode::overlapped, {}, model_machine()) * 1e3 ==
        Approx(model_ms).epsilon(0.01));
}

TEST_CASE("overlapped is never slower than serial, and repeats exactly", "[simulate][again]") {
  const unsigned seed = 2250022560;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto pick = [&random](auto list) { return list[random() % list.size()]; };
  for (int i = 0; i < 40; ++i) {
    const Machine machine = find_machine(pick(built_in_machines()));
    const int ranks = pick(std::vector{2, 6, 8, 16});
    Problem problem = attention(pick(std::vector{4096, 40000, 262144}), 32, pick(std::vector{4, 32}));
    if (random() % 3 == 0) problem.mask.left = 5000;
    const std::string name = pick(all_schedule_names(problem, ranks));
    if (!std::holds_alternative<Recipe>(resolve_schedule(name, problem, ranks))) continue;
    const Pass pass = pick(std::vector{Pass::forward, Pass::backward});
    const bool routed = random() % 2 == 0 && ranks > machine.ranks_per_node && ranks % machine.ranks_per_node == 0;
    const Routes routes = routed ? Routes{machine.ranks_per_node, pick(std::vector{0, 3})} : Routes{};
    const double overlapped = predict(problem, ranks, name, pass, Mode::overlapped, routes, machine);
    INFO(name << " on " << machine.name << ", " << ranks << " ranks, " << name_of(pass) << (routed ? ", routed" : ""));
    const double serial = predict(problem, ranks, name, pass, Mode::serial, routes, machine);
    CHECK(overlapped <= serial * (1 + 1e-12));
    CHECK(overlapped == predict(problem, ranks, name, pass, Mode::overlapped, routes, machine));
  }
}
