/// Which messages are exchanges of whole rows, where their contributions lie, and what the proof says of wrong ones.

#include <algorithm>

#include "catch.hpp"
#include "distattn/lower.hpp"
#include "distattn/verify.hpp"

using namespace distattn;

namespace {

struct Asked {
  const char* name = "allgather";
  int ranks = 4;
  Mode mode = Mode::gathered;
  Pass pass = Pass::forward;
  std::int64_t tokens = 64;
  Mask mask = full_mask();
  Routes routes = {};
};

Schedule lowered(const Asked& asked) {
  const Problem problem{.seq_q = asked.tokens,
                        .seq_kv = asked.tokens,
                        .heads = 4,
                        .kv_heads = 2,
                        .head_dim = 16,
                        .value_dim = 16,
                        .mask = asked.mask};
  const Recipe recipe = std::get<Recipe>(resolve_schedule(asked.name, problem, asked.ranks));
  const auto tiles = std::make_shared<const Tiles>(shard(problem, asked.ranks, recipe.layout, recipe.groups));
  return lower(
      Lowering(recipe.name, tiles, recipe.table(tiles, asked.routes.node_size), asked.pass, asked.mode, asked.routes));
}

/// The values of all gathers of a rank, as text.
std::vector<std::vector<std::string>> gathers_of(const Schedule& schedule, Rank rank) {
  std::vector<std::vector<std::string>> all;
  const RankProgram& program = schedule.ranks[static_cast<std::size_t>(rank)];
  for (const Step& step : program.steps) {
    for (const Gather& gather : step.gathers) {
      auto& names = all.emplace_back();
      for (const BufferId buffer : gather.buffers) names.push_back(to_string(program.buffers[index(buffer)].value));
    }
  }
  return all;
}

bool proved(const Schedule& schedule) {
  const VerifyReport report = verify(schedule);
  for (const Finding& finding : report.findings) UNSCOPED_INFO(finding.message);
  return report.proved();
}

bool finds(const Schedule& schedule, FindingKind kind) {
  const VerifyReport report = verify(schedule);
  for (const Finding& finding : report.findings) UNSCOPED_INFO(finding.message);
  return std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& f) { return f.kind == kind; });
}

/// The first exchange of rank 1, which gathers.
Step& exchange(Schedule& schedule) {
  auto& steps = schedule.ranks[1].steps;
  return *std::find_if(steps.begin(), steps.end(), [](const Step& step) { return !step.gathers.empty(); });
}

using Names = std::vector<std::vector<std::string>>;

}  // namespace

TEST_CASE("what everybody needs is gathered, segment by segment") {
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    const Schedule schedule = lowered({.pass = pass});
    for (Rank rank = 0; rank < 4; ++rank) {
      CHECK(gathers_of(schedule, rank) == Names{{"kv(g0, 0)", "kv(g0, 1)", "kv(g0, 2)", "kv(g0, 3)"},
                                                {"kv(g0, 7)", "kv(g0, 6)", "kv(g0, 5)", "kv(g0, 4)"}});
    }
    CHECK(proved(schedule));
  }
}

TEST_CASE("what only some need is sent") {
  const Schedule schedule = lowered({.mask = causal_mask()});
  for (Rank rank = 0; rank < 4; ++rank) {
    CHECK(gathers_of(schedule, rank) == Names{{"kv(g0, 0)", "kv(g0, 1)", "kv(g0, 2)", "kv(g0, 3)"}});
  }
  CHECK(proved(schedule));
}

TEST_CASE("a mesh gathers queries in its columns and keys in its rows") {
  const Schedule schedule = lowered({.name = "attention2d:3x3", .ranks = 9, .tokens = 63});
  CHECK(gathers_of(schedule, 4) ==
        Names{{"q(g0, 1)", "q(g0, 4)", "q(g0, 7)"}, {"kv(g0, 3)", "kv(g0, 4)", "kv(g0, 5)"}});
  CHECK(proved(schedule));
}

TEST_CASE("on nodes, each gathers what is its own") {
  const Schedule schedule = lowered({.ranks = 6, .tokens = 60, .routes = {3, 0}});
  CHECK(gathers_of(schedule, 5) ==
        Names{{"kv(g0, 3)", "kv(g0, 4)", "kv(g0, 5)"}, {"kv(g0, 8)", "kv(g0, 7)", "kv(g0, 6)"}});
  CHECK(proved(schedule));
}

TEST_CASE("other modes and pairs of ranks gather nothing") {
  for (const Asked& asked : {Asked{.mode = Mode::overlapped}, Asked{.mode = Mode::serial}, Asked{.ranks = 2}}) {
    const Schedule schedule = lowered(asked);
    CHECK(gathers_of(schedule, 0).empty());
    CHECK(proved(schedule));
  }
}

TEST_CASE("contributions lie side by side, at most an eighth larger than they are") {
  const auto padded = [](std::int64_t tokens) {
    const Schedule schedule = lowered({.name = "ring", .tokens = tokens});
    REQUIRE(proved(schedule));
    if (gathers_of(schedule, 0).empty()) return false;
    for (const RankProgram& program : schedule.ranks) {
      const std::vector<BufferId>& buffers = program.steps.front().gathers.front().buffers;
      for (std::size_t member = 0; member < buffers.size(); ++member) {
        const auto slot = static_cast<std::size_t>(program.buffers[index(buffers[member])].slot);
        CHECK(slot == static_cast<std::size_t>(program.buffers[index(buffers[0])].slot) + member);
        CHECK(program.slots[slot] == program.slots[static_cast<std::size_t>(program.buffers[index(buffers[0])].slot)]);
      }
    }
    return true;
  };
  CHECK(padded(4 * 16));
  CHECK(padded(4 * 16 + 3));   // 17, 17, 17 and 16 tokens
  CHECK_FALSE(padded(4 + 1));  // 2, 1, 1 and 1
}

TEST_CASE("a gather that is none is malformed") {
  const auto is_malformed = [](auto change) {
    Schedule schedule = lowered({});
    change(exchange(schedule));
    return finds(schedule, FindingKind::malformed);
  };
  CHECK(is_malformed([](Step& step) { step.gathers[0].buffers.clear(); }));
  CHECK(is_malformed([](Step& step) { step.gathers[0].buffers[2] = BufferId{999}; }));
  CHECK(is_malformed([](Step& step) { std::swap(step.gathers[0].buffers[0], step.gathers[0].buffers[1]); }));
  CHECK(is_malformed([](Step& step) { step.gathers[0].buffers.erase(step.gathers[0].buffers.begin() + 1); }));
  CHECK(is_malformed([](Step& step) { step.gathers[1] = step.gathers[0]; }));
  Schedule schedule = lowered({});
  Step& gathers = exchange(schedule);
  auto& steps = schedule.ranks[1].steps;
  const auto tiles = std::find_if(steps.begin(), steps.end(), [](const Step& s) { return s.lane == Lane::compute; });
  tiles->gathers = gathers.gathers;
  CHECK(finds(schedule, FindingKind::malformed));
}

TEST_CASE("a gather of which other ranks know nothing is unmatched") {
  const auto is_unmatched = [](auto change) {
    Schedule schedule = lowered({});
    change(exchange(schedule));
    return finds(schedule, FindingKind::unmatched);
  };
  CHECK(is_unmatched([](Step& step) { step.gathers.pop_back(); }));
  CHECK(is_unmatched([](Step& step) { std::swap(step.gathers[0].buffers[3], step.gathers[1].buffers[3]); }));
  // A gather of the messages that remain.
  CHECK(is_unmatched([](Step& step) { step.gathers[0].buffers.pop_back(); }));
}

TEST_CASE("a gather whose slots have another size than other ranks' is unmatched") {
  Schedule schedule = lowered({});
  const std::vector<BufferId> buffers = exchange(schedule).gathers[0].buffers;
  RankProgram& program = schedule.ranks[1];
  for (const BufferId buffer : buffers)
    program.slots[static_cast<std::size_t>(program.buffers[index(buffer)].slot)] += 64;
  CHECK(finds(schedule, FindingKind::unmatched));
}

TEST_CASE("gathers in another order than other ranks' would wait for each other") {
  Schedule schedule = lowered({});
  std::swap(exchange(schedule).gathers[0], exchange(schedule).gathers[1]);
  CHECK(finds(schedule, FindingKind::deadlock));
}

TEST_CASE("a contribution where a collective would not put it is misplaced") {
  const auto is_misplaced = [](auto change) {
    Schedule schedule = lowered({});
    const std::vector<BufferId> buffers = exchange(schedule).gathers[0].buffers;
    RankProgram& program = schedule.ranks[1];
    change(program, program.buffers[index(buffers[0])].slot, program.buffers[index(buffers[3])].slot);
    return finds(schedule, FindingKind::misplaced);
  };
  CHECK(is_misplaced([](RankProgram&, int& first, int& last) { std::swap(first, last); }));
  CHECK(
      is_misplaced([](RankProgram& program, int&, int& last) { program.slots[static_cast<std::size_t>(last)] += 64; }));
}
