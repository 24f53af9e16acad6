#include "distattn/placement.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "catch.hpp"
#include "distattn/choose.hpp"
#include "distattn/error.hpp"
#include "distattn/plan.hpp"
#include "distattn/simulate.hpp"

using namespace distattn;

namespace {

Problem packed(std::vector<std::int64_t> documents) {
  Problem problem;
  problem.seq_q = problem.seq_kv = documents.back();
  problem.heads = 8;
  problem.kv_heads = 4;
  problem.head_dim = problem.value_dim = 64;
  problem.dtype = DType::bf16;
  problem.mask = causal_mask();
  problem.mask.documents = std::move(documents);
  return problem;
}

Problem long_among_short() { return packed({0, 24000, 25000, 25900, 26100, 30000, 32768}); }
Problem six_long_ones() { return packed({0, 90000, 110000, 120000, 130000, 160000, 262144}); }

ScheduleRequest placed_on(const std::string& machine) {
  return {.schedule = "placed", .passes = Passes::both, .machine = find_machine(machine)};
}

std::shared_ptr<const Placement> placement_of(const Problem& problem, int ranks, const ScheduleRequest& request) {
  const auto ranking = or_refuse(rank_schedules(problem, ranks, std::get<Machine>(request.machine), request));
  REQUIRE(ranking.size() == 1);
  return ranking.front().placement;
}

/// Every rank's tokens.
std::vector<std::int64_t> tokens_of(const Placement& placement) {
  std::vector<std::int64_t> tokens;
  for (Rank rank = 0; rank < placement.ranks; ++rank) tokens.push_back(owned_tokens(placement.segments, rank));
  return tokens;
}

constexpr const char* two_ranks = R"({"schema_version": 1, "ranks": 2, "segments": [
  {"start": 0, "count": 6, "owner": 1}, {"start": 6, "count": 2, "owner": 0}, {"start": 8, "count": 2, "owner": 1}]})";

}  // namespace

TEST_CASE("a placement is what it was after it was written and read", "[placement]") {
  const ScheduleRequest request = placed_on("dgx-a100x2");
  const auto placement = placement_of(long_among_short(), 16, request);
  CHECK(placement_from_json(to_json(*placement), "text") == *placement);
  CHECK(to_json(placement_from_json(two_ranks, "text")) == to_json(placement_from_json(two_ranks, "text")));
}

TEST_CASE("a caller's layout is kept, and computed by the owners of queries", "[placement]") {
  const Problem problem = packed({0, 6, 10});
  ScheduleRequest request{.schedule = "auto", .passes = Passes::both};
  request.layout = two_ranks;
  const AttentionPlan made = or_refuse(plan(problem, 2, request));
  CHECK(made.name() == "placed");
  const Sharding& sharding = made.outline(Pass::forward).sharding;
  CHECK(sharding.layout.kind == LayoutKind::given);
  CHECK(positions(sharding.queries, 0) == std::vector<std::int64_t>{6, 7});
  CHECK(positions(sharding.keys, 1) == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 8, 9});
  // Positions 8 and 9 see 6 and 7, so that their keys travel, and nothing else does.
  CHECK(made.counts(Pass::forward).bytes_sent[0] == 2 * 4 * (64 + 64) * 2);
  CHECK(made.counts(Pass::forward).bytes_sent[1] == 0);
}

TEST_CASE("fewer queries than keys lie where their keys lie", "[placement]") {
  Problem problem = packed({0, 6, 10});
  problem.seq_q = 3;
  ScheduleRequest request{.schedule = "placed"};
  request.layout = two_ranks;
  const AttentionPlan made = or_refuse(plan(problem, 2, request));
  CHECK(positions(made.outline(Pass::forward).sharding.queries, 0) == std::vector<std::int64_t>{7});
  CHECK(positions(made.outline(Pass::forward).sharding.queries, 1) == std::vector<std::int64_t>{8, 9});
}

TEST_CASE("every rank owns its share of the tokens within the balance", "[placement]") {
  const std::string machine = GENERATE("dgx-a100x2", "ethernet-h100x64");
  const int ranks = GENERATE(2, 7, 16);
  const double balance = GENERATE(0.0, 0.005, 0.2);
  ScheduleRequest request = placed_on(machine);
  request.balance_tokens = balance;
  const Problem problem = long_among_short();
  const auto tokens = tokens_of(*placement_of(problem, ranks, request));
  const double share = static_cast<double>(problem.seq_q) / ranks;
  CAPTURE(machine, ranks, balance);
  CHECK(static_cast<double>(*std::max_element(tokens.begin(), tokens.end())) <= std::ceil(share * (1 + balance)));
}

TEST_CASE("packed documents are placed faster than any published shape deals them out", "[placement][again]") {
  ScheduleRequest request{.passes = Passes::both, .machine = find_machine("dgx-a100x2")};
  const Problem problem = six_long_ones();
  const Machine& machine = std::get<Machine>(request.machine);
  const auto ranking = or_refuse(rank_schedules(problem, 16, machine, request));
  CHECK(ranking.front().name == "placed");
  REQUIRE(ranking.size() > 1);
  CHECK(ranking.front().predicted_s < ranking[1].predicted_s);
  const AttentionPlan made = or_refuse(plan(problem, 16, request));
  double predicted_s = 0;
  for (const PassPlan& pass : predict(made, &machine)) predicted_s += pass.predicted_s;
  CHECK(predicted_s == Approx(ranking.front().predicted_s).epsilon(1e-6));
}

TEST_CASE("slow ranks get less to do, and by work fewer tokens", "[placement][again]") {
  Problem problem = packed({0, 131072});
  ScheduleRequest request = placed_on("dgx-a100x2");
  Machine& machine = std::get<Machine>(request.machine);
  machine.speeds.assign(16, 1);
  std::fill(machine.speeds.begin() + 8, machine.speeds.end(), 0.5);
  const auto seconds = [&] {
    double sum = 0, bound = 0;
    for (const PassPlan& pass : predict(or_refuse(plan(problem, 16, request)), &machine)) {
      sum += pass.predicted_s;
      bound += pass.lower_bound_s;
    }
    CHECK(bound <= sum);
    return sum / bound;
  };
  const double by_tokens = seconds();
  request.balance = Balance::work;
  CHECK(seconds() < 0.9 * by_tokens);
  const auto tokens = tokens_of(*placement_of(problem, 16, request));
  CHECK(static_cast<double>(tokens[8]) < 0.6 * static_cast<double>(tokens[0]));

  problem = six_long_ones();
  request.balance = Balance::tokens;
  const AttentionPlan made = or_refuse(plan(problem, 16, request));
  std::array<double, 2> pairs{};  // of fast and slow ranks
  for (Rank rank = 0; rank < 16; ++rank) {
    const ProgramSketch sketched =
        sketch(made.outline(Pass::forward), made.tiles(Pass::forward), rank, made.program(Pass::forward, rank));
    for (const ProgramSketch::Work& work : sketched.works) pairs[rank < 8 ? 0 : 1] += work.pairs;
  }
  CHECK(pairs[1] < 0.9 * pairs[0]);
  const double of_many = seconds();
  request.balance = Balance::work;  // lets shares follow speed where that is faster
  CHECK(seconds() <= of_many);
}

TEST_CASE("auto is as fast as a placement, also for masks in one piece", "[placement][again]") {
  const std::string name = GENERATE("dgx-a100x2", "ethernet-h100x64");
  Problem problem = packed({0, 512});
  problem.mask.documents.clear();
  SECTION("window") { problem.mask.left = 300; }
  SECTION("window with first keys") {
    problem.mask.left = 100;
    problem.mask.sinks = 32;
  }
  SECTION("full") { problem.mask = full_mask(); }
  SECTION("long") { problem.seq_q = problem.seq_kv = 16384; }
  SECTION("packed") { problem = long_among_short(); }
  ScheduleRequest request = placed_on(name);
  const auto best = [&] {
    return or_refuse(rank_schedules(problem, 16, std::get<Machine>(request.machine), request)).front();
  };
  const Choice placed = best();
  request.schedule = "auto";
  const Choice chosen = best();
  INFO(chosen.name << " on " << name);
  CHECK(chosen.predicted_s <= placed.predicted_s);
  CHECK(or_refuse(plan(problem, 16, with_choice(request, chosen))).memory_bytes() <= chosen.memory_bytes);
}

TEST_CASE("auto places a short window, whose steps it takes together", "[placement]") {
  Problem problem = packed({0, 512});
  problem.mask.documents.clear();
  problem.mask.left = 300;
  const Machine machine = find_machine("dgx-h100x8");
  const auto ranking = or_refuse(rank_schedules(problem, 8, machine, {.schedule = "auto"}));
  CHECK(ranking.front().name == "placed");
}

TEST_CASE("a mesh over nodes is chosen for messages that pass nodes once, and posted early", "[placement]") {
  Problem problem = packed({0, 524288});
  problem.heads = 32;
  problem.kv_heads = 8;
  problem.head_dim = problem.value_dim = 128;
  ScheduleRequest request = placed_on("dgx-h100x8");
  Machine& machine = std::get<Machine>(request.machine);
  machine.nodes = 4;
  machine.far = {12.5e9, machine.far.latency_s};
  machine.far_owner = LinkOwner::node;
  const auto best = [&] { return or_refuse(rank_schedules(problem, 32, machine, request)).front(); };
  const Choice free = best();
  CHECK(free.routes.node_size == 8);
  CHECK(free.routes.ahead > 0);
  request.node_size = 0;
  CHECK(free.predicted_s < 0.95 * best().predicted_s);
}

TEST_CASE("slow ranks in every node share a document by rows that are as long as they are fast", "[placement]") {
  Problem problem = packed({0, 524288});
  problem.heads = 32;
  problem.kv_heads = 8;
  ScheduleRequest request = placed_on("dgx-a100x2");
  request.balance = Balance::work;
  Machine& machine = std::get<Machine>(request.machine);
  machine.far.bytes_per_s /= 8;
  const auto seconds = [&] { return or_refuse(rank_schedules(problem, 16, machine, request)).front().predicted_s; };
  machine.speeds.assign(16, 0.9);
  const double balanced = seconds();
  machine.speeds.assign(16, 1);
  for (const std::size_t slow : {6, 7, 14, 15}) machine.speeds[slow] = 0.6;
  CHECK(seconds() < 1.1 * balanced);
}

TEST_CASE("layouts that are wrong are refused, saying where", "[placement]") {
  const Problem problem = packed({0, 6, 10});
  const auto refusal = [&](const std::string& from, const std::string& to) -> std::string {
    ScheduleRequest request{.schedule = "placed", .passes = Passes::both};
    request.layout = two_ranks;
    const std::size_t at = request.layout.find(from);
    REQUIRE(at != std::string::npos);
    request.layout.replace(at, from.size(), to);
    try {
      (void)or_refuse(plan(problem, 2, request));
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      return error.what();
    }
    return "";
  };
  CHECK_THAT(refusal("\"count\": 6", "\"count\": 5"), contains_text("fewer positions"));
  CHECK_THAT(refusal("\"start\": 6", "\"start\": 5"), contains_text("share a position"));
  CHECK_THAT(refusal("\"count\": 6", "\"count\": 7"), contains_text("share a position"));
  CHECK_THAT(refusal("\"owner\": 0", "\"owner\": 2"), contains_text("segments[1].owner"));
  CHECK_THAT(refusal("\"ranks\": 2", "\"ranks\": 3"), contains_text("for 3 ranks (there are 2)"));
  CHECK_THAT(refusal("\"owner\": 0", "\"owner\": 0, \"mesh\": 0"), contains_text("mesh 0 (there are 0)"));
  CHECK_THAT(refusal("\"schema_version\": 1", "\"schema_version\": 2"), contains_text("schema_version"));
  CHECK_THAT(refusal("\"start\": 8", "\"begin\": 8"), contains_text("segments[2]"));
  CHECK_THAT(refusal("]}", "]"), contains_text("not JSON"));
}

TEST_CASE("meshes that are wrong are refused, saying which", "[placement]") {
  const auto refusal = [](const std::string& mesh) -> std::string {
    const std::string text = R"({"schema_version": 1, "ranks": 4, "groups": 2, "segments": [
      {"start": 0, "count": 8, "owner": 1, "mesh": 0}], "meshes": [)" +
                             mesh + "]}";
    try {
      (void)placement_from_json(text, "text");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refusal(R"({"groups": 2, "rows": 1, "columns": 1, "ranks": [0, 1]})").empty());
  CHECK_THAT(refusal(R"({"groups": 2, "rows": 2, "columns": 1, "ranks": [0, 1]})"), contains_text("lists 2 ranks"));
  CHECK_THAT(refusal(R"({"groups": 1, "rows": 2, "columns": 1, "ranks": [1, 1]})"), contains_text("rank 1 twice"));
  CHECK_THAT(refusal(R"({"groups": 1, "rows": 2, "columns": 1, "ranks": [0, 2]})"), contains_text("does not list it"));
  CHECK_THAT(refusal(R"({"groups": 3, "rows": 1, "columns": 1, "ranks": [0, 1, 2]})"),
             contains_text("head groups of 2"));
  CHECK_THAT(refusal(R"({"groups": 1, "rows": 2, "columns": 1, "ranks": [1, 4]})"), contains_text("meshes[0]"));
}

TEST_CASE("more freedom makes no placement slower", "[placement]") {
  Problem problem = packed({0, 49152, 65536});
  problem.kv_heads = 2;
  ScheduleRequest request = placed_on("ethernet-h100x64");
  const auto seconds = [&](int ranks) {
    const Machine& machine = std::get<Machine>(request.machine);
    return or_refuse(rank_schedules(problem, ranks, machine, request)).front().predicted_s;
  };
  const auto check_balances = [&](int ranks, std::initializer_list<double> balances) {
    double least = std::numeric_limits<double>::infinity();
    for (const double balance : balances) {
      CAPTURE(ranks, balance);
      request.balance_tokens = balance;
      const double found = seconds(ranks);
      CHECK(found <= least * (1 + 1e-12));
      least = std::min(least, found);
    }
  };
  check_balances(3, {0, 0.005, 1});

  request = placed_on("dgx-a100x2");
  std::get<Machine>(request.machine).speeds = {1, 1, 1, 0.5};
  problem.mask = full_mask();
  check_balances(4, {0.005, 0.1, 1, 100});

  std::get<Machine>(request.machine).speeds = {1, 0.3, 1, 1};
  problem.seq_q = problem.seq_kv = 4096;
  problem.mask = causal_mask();
  problem.mask.left = 512;
  request.balance_tokens = 0.005;
  const double by_tokens = seconds(4);
  request.balance = Balance::work;
  CHECK(seconds(4) <= by_tokens * (1 + 1e-12));
}

TEST_CASE("what binds a placement is what it would be faster without", "[placement]") {
  const Problem problem = six_long_ones();
  ScheduleRequest request = placed_on("dgx-h100x8");
  Machine machine = std::get<Machine>(request.machine);
  const auto binds = [&](const Problem& of, int ranks) { return std::string(what_binds(of, ranks, machine, request)); };
  CHECK(binds(packed({0, 16384, 32768, 49152, 65536}), 4) == "compute");
  CHECK(binds(problem, 2) == "tokens");
  CHECK(binds(packed({0, 131072, 131100, 131200}), 16) == "one document");
  machine.speeds = {1, 1, 1, 0.5, 1, 1, 1, 1};
  CHECK(binds(packed({0, 16384}), 8) == "tokens");
  machine.speeds.clear();
  machine.near.bytes_per_s /= 64;
  CHECK(binds(problem, 8) == "near");
  machine = find_machine("ethernet-h100x64");
  CHECK(binds(problem, 8) == "far");
}

TEST_CASE("links that are too slow for any sharing leave no placement", "[placement]") {
  ScheduleRequest request = placed_on("dgx-a100x2");
  std::get<Machine>(request.machine).near.bytes_per_s = 1e-9;
  std::get<Machine>(request.machine).far.bytes_per_s = 1e-9;
  const Planned none = plan(packed({0, 32768}), 4, request);
  REQUIRE(std::holds_alternative<WhyNot>(none));
  CHECK_THAT(std::get<WhyNot>(none).message, contains_text("no placement gives 4 ranks tokens within 0.5 %"));
  CHECK(std::get<WhyNot>(none).schedule == "placed");
}

TEST_CASE("placed refuses what it cannot do", "[placement]") {
  Problem problem = long_among_short();
  ScheduleRequest request = placed_on("dgx-a100x2");
  request.balance_tokens = -0.1;
  CHECK_THROWS_WITH(plan(problem, 4, request), contains_text("balance_tokens -0.1"));
  request.balance_tokens = std::numeric_limits<double>::infinity();
  CHECK_THROWS_WITH(plan(problem, 4, request), contains_text("balance_tokens inf"));
  CHECK_THROWS_WITH(plan(problem, 65537, placed_on("dgx-a100x2")), contains_text("65537 ranks"));
  request.balance_tokens = 0.005;
  request.layout = two_ranks;
  request.schedule = "ring";
  CHECK_THROWS_WITH(plan(problem, 2, request), contains_text("has a layout of its own"));
  request.layout.clear();
  request.schedule = "placed";
  problem.seq_q = 100;
  const Planned none = plan(problem, 4, request);
  REQUIRE(std::holds_alternative<WhyNot>(none));
  CHECK_THAT(std::get<WhyNot>(none).message, contains_text("100 queries"));
}
