/// Every kind of broken program is rejected, and the finding names rank, step and value.

#include <algorithm>
#include <limits>
#include <memory>

#include "catch.hpp"
#include "distattn/lower.hpp"
#include "distattn/verify.hpp"

using namespace distattn;

namespace {

Schedule ring(Pass pass = Pass::forward, Routes routes = {}, const char* name = "ring") {
  Problem problem;
  problem.seq_q = problem.seq_kv = 32;
  problem.head_dim = problem.value_dim = 8;
  problem.mask = causal_mask();
  const Recipe recipe = std::get<Recipe>(resolve_schedule(name, problem, 4));
  const auto tiles = std::make_shared<const Tiles>(shard(problem, 4, recipe.layout, recipe.groups));
  return lower(Lowering(recipe.name, tiles, recipe.table(tiles, routes.node_size), pass, recipe.mode, routes));
}

bool finds(const Schedule& schedule, FindingKind kind) {
  const VerifyReport report = verify(schedule);
  for (const Finding& finding : report.findings) UNSCOPED_INFO(name_of(finding.kind) << ": " << finding.message);
  return std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& f) { return f.kind == kind; });
}

/// The first step of `rank` that holds an operation O.
template <class O>
Step& step_with(Schedule& schedule, Rank rank) {
  for (Step& step : schedule.ranks[static_cast<std::size_t>(rank)].steps) {
    for (const Op& op : step.ops) {
      if (std::holds_alternative<O>(op)) return step;
    }
  }
  throw std::logic_error("no such step");
}
template <class O>
O& op_of(Step& step) {
  for (Op& op : step.ops) {
    if (auto* o = std::get_if<O>(&op)) return *o;
  }
  throw std::logic_error("no such operation");
}

/// Lets `one` lie where `other` does; a slot that is then nobody's goes.
void share_slot(RankProgram& program, BufferId one, BufferId other) {
  const int slot = program.buffers[index(other)].slot, left = program.buffers[index(one)].slot;
  std::size_t& bytes = program.slots[static_cast<std::size_t>(slot)];
  bytes = std::max(bytes, program.buffers[index(one)].bytes);
  program.buffers[index(one)].slot = slot;
  const auto lies_there = [&](const BufferDecl& buffer) { return buffer.slot == left; };
  if (std::any_of(program.buffers.begin(), program.buffers.end(), lies_there)) return;
  const int last = static_cast<int>(program.slots.size()) - 1;
  program.slots[static_cast<std::size_t>(left)] = program.slots.back();
  program.slots.pop_back();
  for (BufferDecl& buffer : program.buffers) {
    if (buffer.slot == last) buffer.slot = left;
  }
}

/// A new buffer for the same value in another element type.
BufferId converted(const Schedule& schedule, RankProgram& program, BufferId from, DType dtype) {
  BufferDecl decl = program.buffers[index(from)];
  decl.dtype = dtype;
  decl.bytes = buffer_bytes(schedule.outline, decl.value, dtype);
  decl.slot = static_cast<int>(program.slots.size());
  program.slots.push_back(decl.bytes);
  program.buffers.push_back(decl);
  return static_cast<BufferId>(program.buffers.size() - 1);
}

}  // namespace

TEST_CASE("what lower derives is proved") {
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    for (const char* name :
         {"ring", "zigzag-ring", "striped-ring", "burst", "balanced", "balanced-split", "allgather"}) {
      for (const int node : {0, 2}) {
        INFO(name << " node " << node);
        const VerifyReport report = verify(ring(pass, {node, 1}, name));
        for (const Finding& finding : report.findings) UNSCOPED_INFO(finding.message);
        CHECK(report.proved());
      }
    }
  }
}

TEST_CASE("malformed: an index out of range") {
  Schedule s = ring();
  op_of<Attend>(step_with<Attend>(s, 1)).query = static_cast<BufferId>(999);
  CHECK(finds(s, FindingKind::malformed));
}

TEST_CASE("malformed: a buffer smaller than its value") {
  Schedule s = ring();
  s.ranks[0].slots[0] -= 64;
  CHECK(finds(s, FindingKind::malformed));
}

TEST_CASE("malformed: slots whose sizes have no sum") {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  for (const std::size_t huge : {most, most - 62, most / 2 + 1, most / 2}) {
    Schedule s = ring();
    s.ranks[1].slots[0] = huge;
    CHECK(finds(s, FindingKind::malformed));
  }
  Schedule s = ring();
  for (std::size_t& slot : s.ranks[1].slots) slot += most / 2 / s.ranks[1].slots.size();
  CHECK(finds(s, FindingKind::malformed));
}

TEST_CASE("malformed: a slot that no buffer uses") {
  Schedule s = ring();
  s.ranks[1].slots.push_back(0);
  CHECK(finds(s, FindingKind::malformed));
}

TEST_CASE("malformed: a rank without a program") {
  Schedule s = ring();
  s.ranks.pop_back();
  CHECK(finds(s, FindingKind::malformed));
}

TEST_CASE("unmatched: a message under another step number") {
  Schedule s = ring();
  Step& step = step_with<Send>(s, 0);
  ++step.number, ++step.due;
  CHECK(finds(s, FindingKind::unmatched));
}

TEST_CASE("early: tiles before their keys are there") {
  Schedule s = ring();
  auto& steps = s.ranks[3].steps;
  steps.erase(std::find_if(steps.begin(), steps.end(), [](const Step& x) { return x.lane == Lane::near; }));
  for (Step& step : steps) step.after.clear();
  CHECK(finds(s, FindingKind::early));
}

TEST_CASE("late: a value read after its slot was given away") {
  Schedule s = ring();
  RankProgram& last = s.ranks[3];
  BufferId first_received{-1};
  for (Step& step : last.steps) {
    for (Op& op : step.ops) {
      if (auto* receive = std::get_if<Recv>(&op); receive != nullptr && first_received == BufferId{-1}) {
        first_received = receive->into;
      }
    }
  }
  REQUIRE(first_received != BufferId{-1});
  op_of<Attend>(last.steps.back()).keys.front().key_value = first_received;
  CHECK(finds(s, FindingKind::late));
}

TEST_CASE("misplaced: queries that are keys") {
  Schedule s = ring();
  Attend& attend = op_of<Attend>(step_with<Attend>(s, 2));
  attend.query = attend.keys.front().key_value;
  CHECK(finds(s, FindingKind::misplaced));
}

TEST_CASE("coverage: a tile computed twice, or never") {
  Schedule twice = ring();
  auto& keys = op_of<Attend>(step_with<Attend>(twice, 1)).keys;
  keys.push_back(keys.front());
  CHECK(finds(twice, FindingKind::coverage));
  Schedule never = ring();
  never.ranks[2].steps.pop_back();
  CHECK(finds(never, FindingKind::coverage));
}

TEST_CASE("altered: a partial updated after it was sent") {
  Schedule s = ring(Pass::forward, {}, "balanced");
  RankProgram& helper = s.ranks[0];
  Step attend = helper.steps.back();
  for (const Step& step : helper.steps) {
    if (step.lane != Lane::compute || !std::holds_alternative<Attend>(step.ops[0])) continue;
    attend = step;
  }
  for (Op& op : attend.ops) std::get<Attend>(op).start = Start::carry;
  attend.number = attend.due = helper.steps.back().number;
  helper.steps.push_back(attend);
  CHECK((finds(s, FindingKind::altered) || finds(s, FindingKind::coverage)));
}

TEST_CASE("undelivered: an own result that is not there at the end") {
  Schedule s = ring();
  s.ranks[0].steps.erase(std::find_if(s.ranks[0].steps.begin(), s.ranks[0].steps.end(),
                                      [](const Step& step) { return std::holds_alternative<Attend>(step.ops[0]); }));
  CHECK(finds(s, FindingKind::undelivered));
}

TEST_CASE("leak: a partial that nobody merges") {
  Schedule s = ring(Pass::forward, {}, "burst");
  Step& merges = step_with<Merge>(s, 3);
  merges.ops.erase(std::find_if(merges.ops.begin(), merges.ops.end(),
                                [](const Op& op) { return std::holds_alternative<Merge>(op); }));
  CHECK(finds(s, FindingKind::leak));
}

TEST_CASE("race: lanes that nothing orders") {
  Schedule s = ring();
  for (Step& step : s.ranks[3].steps) step.after.clear();
  CHECK(finds(s, FindingKind::race));
}

TEST_CASE("race: operands of one operation that share a slot") {
  const auto finds_when_shared = [](Schedule schedule, BufferId written, BufferId other) {
    share_slot(schedule.ranks[2], written, other);
    return finds(schedule, FindingKind::race);
  };
  Schedule forward = ring(Pass::forward, {}, "burst"), backward = ring(Pass::backward, {}, "burst");
  const auto& attend = op_of<Attend>(step_with<Attend>(forward, 2));
  CHECK(finds_when_shared(forward, attend.output, attend.query));
  CHECK(finds_when_shared(forward, attend.output, attend.keys[0].key_value));
  for (const Step& step : backward.ranks[2].steps) {
    for (const Op& op : step.ops) {
      const auto* tile = std::get_if<AttendBackward>(&op);
      if (tile == nullptr) continue;
      CHECK(finds_when_shared(backward, tile->dquery, tile->query));
      CHECK(finds_when_shared(backward, tile->keys[0].dkey_value, tile->keys[0].key_value));
      CHECK(finds_when_shared(backward, tile->dquery, tile->keys[0].dkey_value));
    }
  }
}

TEST_CASE("undelivered: an own result that is kept in another element type") {
  Schedule s = ring();
  for (BufferDecl& buffer : s.ranks[2].buffers) {
    if (is_input(buffer.value.kind) || buffer.value.contributor != 2) continue;
    buffer.dtype = DType::bf16;
    buffer.bytes = buffer_bytes(s.outline, buffer.value, buffer.dtype);
  }
  CHECK(finds(s, FindingKind::undelivered));
}

TEST_CASE("misplaced: a partial that is rounded on its way to the wire") {
  Schedule s = ring(Pass::backward);
  CHECK(verify(s).proved());
  for (RankProgram& program : s.ranks) {
    for (Step& step : program.steps) {
      for (Op& op : step.ops) {
        auto* const send = std::get_if<Send>(&op);
        if (send == nullptr || is_input(program.buffers[index(send->source)].value.kind)) continue;
        const BufferId exact = send->source;
        const BufferId rounded = converted(s, program, exact, DType::bf16);
        send->source = converted(s, program, rounded, DType::fp32);
        Step& last = program.steps[index(step.after.back())];
        REQUIRE(last.lane == Lane::compute);
        last.ops.insert(last.ops.end(), {Convert{rounded, exact}, Convert{send->source, rounded}});
        CHECK(finds(s, FindingKind::misplaced));
        return;
      }
    }
  }
  FAIL("no result is sent");
}

TEST_CASE("malformed: a step number that cannot be counted on from") {
  Schedule s = ring();
  s.ranks[1].steps.back().number = s.ranks[1].steps.back().due = std::numeric_limits<std::int32_t>::max();
  CHECK(finds(s, FindingKind::malformed));
}

TEST_CASE("deadlock: exchanges in another order, or a step that waits for a later one") {
  Schedule swapped = ring();
  auto& steps = swapped.ranks[3].steps;
  std::vector<std::size_t> exchanges;
  for (std::size_t x = 0; x < steps.size(); ++x) {
    if (steps[x].lane == Lane::near) exchanges.push_back(x);
  }
  REQUIRE(exchanges.size() >= 2);
  std::swap(steps[exchanges[0]], steps[exchanges[1]]);
  CHECK(finds(swapped, FindingKind::deadlock));
  Schedule waits = ring();
  waits.ranks[3].steps[0].after.push_back(static_cast<StepId>(waits.ranks[3].steps.size() - 1));
  CHECK(finds(waits, FindingKind::deadlock));
}

TEST_CASE("mask: bands that share a pair") {
  Schedule s = ring();
  s.outline.sharding.problem.mask.explicit_bands = true;
  s.outline.sharding.problem.mask.causal = false;
  s.outline.sharding.problem.mask.given = {Band{0, 32, 0, 32, 0, unbounded}, Band{4, 5, 0, 4}};
  CHECK(finds(s, FindingKind::mask));
}

TEST_CASE("a finding names rank, step and value") {
  Schedule s = ring();
  Step& step = step_with<Send>(s, 1);
  ++step.number, ++step.due;
  const VerifyReport report = verify(s);
  REQUIRE_FALSE(report.proved());
  const auto named = std::find_if(report.findings.begin(), report.findings.end(),
                                  [](const Finding& f) { return f.kind == FindingKind::unmatched; });
  REQUIRE(named != report.findings.end());
  CHECK(named->rank >= 0);
  CHECK(named->step >= 0);
  CHECK(named->message.find("rank ") != std::string::npos);
  CHECK(named->message.find("kv(") != std::string::npos);
}
