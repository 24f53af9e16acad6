/// The one way from a request to a plan, and each reason why there is none. What has too many messages depends on this
/// process's memory: tests/cli plans such a schedule under a limit.

#include "distattn/request.hpp"

#include <set>

#include "catch.hpp"
#include "distattn/plan.hpp"

using namespace distattn;

namespace {

Problem small_problem() {
  Problem problem;
  problem.seq_q = problem.seq_kv = 64;
  problem.heads = problem.kv_heads = 4;
  problem.head_dim = problem.value_dim = 8;
  problem.mask = causal_mask();
  return problem;
}

WhyNot why_not(const ScheduleRequest& request, int ranks) {
  const Planned planned = plan(small_problem(), ranks, request);
  REQUIRE(std::holds_alternative<WhyNot>(planned));
  return std::get<WhyNot>(planned);
}

/// On 5 ranks it says that it computes something, and computes nothing.
void register_idle_schedule() {
  static const bool once = [] {
    register_schedule({"idle", {}, [](std::string_view, const Problem&, int ranks) -> RecipeOrReason {
                         if (ranks != 5) return "5 ranks are needed";
                         return Recipe{.name = "idle", .layout = {LayoutKind::block, 1}, .table = [](auto, int) {
                                         return Table{1, [](int, Rank, const Table::Sink&) {}};
                                       }};
                       }});
    return true;
  }();
  REQUIRE(once);
}

}  // namespace

TEST_CASE("what has no plan has a kind, a reason for lists and a message by itself", "[request]") {
  register_idle_schedule();
  using Kind = WhyNot::Kind;
  struct Case {
    ScheduleRequest request;
    Kind kind;
    bool concerns_one_schedule;
    std::string reason, message;
    int ranks = 8;
  };
  const std::vector<Case> cases{
      {{.schedule = "ulysses"},
       Kind::does_not_apply,
       true,
       "8 head groups need as many heads, there are 4",
       "schedule ulysses does not apply to this problem on 8 ranks (8 head groups need as many heads, there are 4): "
       "choose another, or auto"},
      {{.schedule = "ring", .memory_bytes = 1},
       Kind::too_large,
       true,
       "(memory_bytes allows 1 B)",
       "(memory_bytes allows 1 B): choose another schedule or more ranks"},
      {{.memory_bytes = 1}, Kind::none_left, true, "no schedule fits 1 B a rank", "no schedule fits 1 B a rank"},
      {{.machine = "dgx-a100x2"}, Kind::none_left, true, "17 ranks do not fit machine", "17 ranks do not fit", 17},
      {{.schedule = "ring", .ahead = 2},
       Kind::no_nodes,
       false,
       "ahead 2 (one node has 8 ranks",
       "ahead 2 (one node has 8 ranks: nothing travels between nodes): add node_size"},
      {{.ahead = 2},
       Kind::no_nodes,
       false,
       "ahead 2 (one node has 8 ranks",
       "ahead 2 (one node has 8 ranks: nothing travels between nodes): add node_size"},
      {{.schedule = "ring", .node_size = 8, .ahead = 2},
       Kind::no_nodes,
       false,
       "ahead 2 (one node has 8 ranks",
       "ahead 2 (one node has 8 ranks: nothing travels between nodes): use more ranks, or smaller nodes"},
      {{.schedule = "ring", .ahead = 2},
       Kind::no_nodes,
       false,
       "ahead 2 (one node has 1 rank:",
       "ahead 2 (one node has 1 rank: nothing travels between nodes): add node_size",
       1},
      {{.schedule = "idle"}, Kind::not_proved, false, "fails its proof (", "schedule idle fails its proof (", 5},
  };
  for (const Case& one : cases) {
    const WhyNot why = why_not(one.request, one.ranks);
    INFO(why.message);
    CHECK(why.kind == one.kind);
    CHECK(why.schedule == one.request.schedule);
    CHECK(why.ranks == one.ranks);
    CHECK(why.error == ErrorKind::usage);
    CHECK(why.concerns_one_schedule() == one.concerns_one_schedule);
    CHECK_THAT(why.reason, contains_text(one.reason));
    CHECK_THAT(why.message, contains_text(one.message));
    CHECK_THROWS_WITH(or_refuse(plan(small_problem(), one.ranks, one.request)), contains_text(why.message));
    CHECK_THROWS_WITH(AttentionPlan(small_problem(), one.ranks, one.request), contains_text(why.message));
  }
}

TEST_CASE("what is no request is an error, not a reason", "[request]") {
  CHECK_THROWS_WITH(plan(small_problem(), 8, {.schedule = "rings"}), contains_text("rings"));
  CHECK_THROWS_WITH(plan(small_problem(), 0, {.schedule = "ring"}), contains_text("0 ranks"));
  CHECK_THROWS_WITH(plan(small_problem(), 8, {.schedule = "ring", .machine = "abacus"}), contains_text("abacus"));
  CHECK_THROWS_WITH(plan(small_problem(), 17, {.schedule = "ring", .machine = find_machine("dgx-a100x2")}),
                    contains_text("17 ranks do not fit machine"));
}

TEST_CASE("a layout that is named goes with every mesh and with auto", "[request]") {
  const auto asked = [](const char* schedule, const char* layout) {
    return decided(small_problem(), 4, {.schedule = schedule, .passes = Passes::both, .layout = layout});
  };
  const auto name = [&](const char* schedule, const char* layout) {
    const ScheduleRequest made = or_refuse(asked(schedule, layout));
    CHECK(made.layout.empty());
    const AttentionPlan plan(small_problem(), 4, made);
    CHECK(plan.outline(Pass::forward).sharding.layout == layout_named(layout));
    CHECK(plan.name() == made.schedule);
    return made.schedule;
  };
  CHECK(name("ring", "striped:5") == "mesh:1x4x1:striped:5");
  CHECK(name("zigzag-ring/burst", "striped:5") == "mesh:1x4x1:striped:5/mesh:1x1x4:striped:5");
  CHECK(name("mesh:2x1x2:striped:5", "striped:5") == "mesh:2x1x2:striped:5");
  CHECK(name("usp:2", "striped:16") == "mesh:2x2x1:striped:16");
  CHECK(name("ring", "zigzag") == "zigzag-ring");
  CHECK(name("attention2d", "striped") == "attention2d");
  CHECK(name("auto", "striped:8").ends_with(":striped:8"));
  for (const char* schedule : {"balanced", "allgather", "placed", "ring/balanced"}) {
    const auto made = asked(schedule, "striped:8");
    const auto* const why = std::get_if<WhyNot>(&made);
    REQUIRE(why != nullptr);
    CHECK(why->kind == WhyNot::Kind::does_not_apply);
    CHECK(why->reason.ends_with("has a layout of its own"));
    CHECK(why->message.find("does not go with layout striped:8 on 4 ranks (") != std::string::npos);
  }
  CHECK_THROWS_WITH(asked("ring", "striped:0"), contains_text("write striped:64"));
  Problem longer = small_problem();
  longer.seq_q = longer.seq_kv = 1 << 20;
  const auto planned = plan(longer, 4, {.schedule = "burst", .layout = "striped:16"});
  REQUIRE(std::holds_alternative<WhyNot>(planned));
  CHECK(std::get<WhyNot>(planned).reason ==
        "striped:16 deals out 65536 blocks of queries and 65536 of keys, and 16777216 pairs of blocks are most");
}

TEST_CASE("node_size 0 is straight, nothing is the machine's", "[request]") {
  const auto node_size = [](std::optional<int> asked) {
    const ScheduleRequest request{.schedule = "ring", .node_size = asked, .machine = "dgx-a100x2"};
    return or_refuse(plan(small_problem(), 16, request)).routes().node_size;
  };
  CHECK(node_size({}) == 8);
  CHECK(node_size(0) == 0);
  CHECK(node_size(4) == 4);
}

TEST_CASE("a decided request leaves nothing open and makes the same plan on any machine", "[request]") {
  const ScheduleRequest asked{.passes = Passes::both, .machine = "dgx-a100x2"};
  ScheduleRequest decision = or_refuse(decided(small_problem(), 16, asked));
  CHECK(decision.schedule != "auto");
  CHECK(decision.node_size.has_value());
  CHECK(decision.ahead.has_value());
  const auto fingerprint = or_refuse(plan(small_problem(), 16, asked)).fingerprint();
  CHECK(or_refuse(plan(small_problem(), 16, decision)).fingerprint() == fingerprint);
  decision.machine = find_machine("dgx-h100x8");
  CHECK(AttentionPlan(small_problem(), 16, decision).fingerprint() == fingerprint);
}

TEST_CASE("the fields of a request are those that ranks tell each other", "[request]") {
  std::set<std::string> names;
  ScheduleRequest request;
  fields_of(request, [&](const char* name, auto&) { names.insert(name); });
  CHECK(names == std::set<std::string>{"schedule", "passes", "mode", "node_size", "ahead", "memory_bytes", "threads",
                                       "balance", "balance_tokens", "layout"});
}

TEST_CASE("predictions and fingerprints do not depend on what a plan was made for", "[request]") {
  const Machine machine = find_machine("dgx-a100x2");
  Problem problem = small_problem();
  problem.dtype = DType::bf16;
  ScheduleRequest request{.schedule = "ring/burst", .passes = Passes::both, .machine = "dgx-a100x2"};
  const auto to_run = or_refuse(plan(problem, 16, request));
  request.machine = machine;
  const auto to_predict = or_refuse(plan(problem, 16, request));
  CHECK(to_run.fingerprint() == to_predict.fingerprint());
  const auto later = predict(to_run, &machine), at_once = predict(to_predict, &machine);
  REQUIRE(later.size() == 2);
  REQUIRE(at_once.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(to_json(later[i]) == to_json(at_once[i]));
    CHECK(later[i].schedule == "ring/burst");
    CHECK(later[i].predicted_s == to_run.predict(later[i].pass, machine).seconds);
  }
  for (const PassPlan& counted : predict(to_run)) CHECK(!(counted.predicted_s >= 0));
}
