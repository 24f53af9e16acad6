#include "distattn/plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/src/format.hpp"
#include "core/src/parallel.hpp"
#include "core/src/planner/plan_fields.hpp"
#include "core/src/prediction/described.hpp"
#include "core/src/schedule/digest.hpp"
#include "distattn/index.hpp"
#include "distattn/placement.hpp"
#include "distattn/simulate.hpp"

namespace distattn {
namespace {

std::uint64_t fingerprint_of(const auto&... items) {
  Digest digest;
  (digest.add(items), ...);
  return digest.value();
}

}  // namespace

/// A pass that was proved, lowered here or made elsewhere, and what its proof counted.
struct ProvedPass {
  std::variant<Lowering, Schedule> source;
  std::shared_ptr<const Tiles> tiles;
  Counts counts;
  std::vector<std::uint64_t> digests;   ///< of the programs, if the plan was made to run
  std::vector<ProgramSketch> sketches;  ///< of the programs, if it was made for a machine
  int block = 0;                        ///< of these sketches

  const Outline& outline() const {
    const auto* lowering = std::get_if<Lowering>(&source);
    return lowering ? lowering->outline() : std::get<Schedule>(source).outline;
  }
  RankProgram program(Rank rank) const {
    const auto* lowering = std::get_if<Lowering>(&source);
    return lowering ? lowering->program(rank) : std::get<Schedule>(source).ranks[index(rank)];
  }
  /// What `make(rank, program)` makes of every rank's program.
  template <class T, class Make>
  std::vector<T> of_programs(const Make& make) const {
    std::vector<T> all(index(tiles->ranks()));
    for_each_rank(tiles->ranks(), [&](Rank rank) { all[index(rank)] = make(rank, program(rank)); });
    return all;
  }
  std::uint64_t fingerprint() const {
    const auto digest = [](Rank, const RankProgram& program) { return fingerprint_of(program); };
    return fingerprint_of(outline(), digests.empty() ? of_programs<std::uint64_t>(digest) : digests);
  }
  /// Those that are kept if they are for blocks of this size, otherwise new ones, which are put into `made`.
  const std::vector<ProgramSketch>& sketched(int of_block, std::vector<ProgramSketch>& made,
                                             const Latents* latents = nullptr) const {
    if (block == of_block && latents == nullptr) return sketches;
    return made = of_programs<ProgramSketch>([&](Rank rank, const RankProgram& program) {
             return sketch(outline(), *tiles, rank, program, of_block, latents);
           });
  }
};

namespace {

/// Proves every rank's program, and keeps what a prediction on the machine needs, or else a run; or what is wrong.
std::variant<ProvedPass, std::string> prove(std::variant<Lowering, Schedule> source, std::shared_ptr<const Tiles> tiles,
                                            const Machine* machine) {
  ProvedPass pass{std::move(source), std::move(tiles), {}, {}, {}, machine != nullptr ? machine->tiles.block : 0};
  Verifier verifier(pass.outline(), pass.tiles);
  if (machine != nullptr) {
    pass.sketches = pass.of_programs<ProgramSketch>([&](Rank rank, const RankProgram& program) {
      verifier.add(rank, program);
      return sketch(pass.outline(), *pass.tiles, rank, program, pass.block);
    });
  } else {
    pass.digests = pass.of_programs<std::uint64_t>([&](Rank rank, const RankProgram& program) {
      verifier.add(rank, program);
      return fingerprint_of(program);
    });
  }
  VerifyReport report = verifier.finish();
  if (!report.proved()) {
    return fmt::format("fails its proof ({}: {}; {} findings)", name_of(report.findings[0].kind),
                       report.findings[0].message, report.findings.size());
  }
  pass.counts = std::move(report.counts);
  return pass;
}

WhyNot not_proved(const std::string& schedule, int ranks, std::string wrong) {
  std::string message = fmt::format("schedule {} {}: correct the program", schedule, wrong);
  return {WhyNot::Kind::not_proved, schedule, ranks, std::move(wrong), std::move(message)};
}

/// Refuses programs whose results are not each other's input: of other problems, or other owners of the tokens.
void check_pair(const Sharding& forward, const Sharding& backward) {
  if (forward.problem != backward.problem) {
    refuse(
        "forward and backward programs compute different problems (one's results are the other's input): make both "
        "for one shape, mask, scale and type");
  }
  if (forward.ranks != backward.ranks || forward.queries != backward.queries || forward.keys != backward.keys) {
    refuse("forward and backward programs shard differently (one's results are the other's input): use one layout");
  }
}

void check_name(const std::string& name) {
  if (name.size() <= AttentionPlan::longest_name) return;
  refuse(fmt::format("a schedule's name has {} characters (ranks tell it to each other in {} at most): shorten it",
                     name.size(), AttentionPlan::longest_name));
}

}  // namespace

struct AttentionPlan::State {
  PerPass<std::optional<ProvedPass>> passes;
  Routes routes;
  std::string layout;

  const ProvedPass& at(Pass pass) const {
    DISTATTN_EXPECT(passes[pass].has_value());
    return *passes[pass];
  }
};

namespace {

/// `layout` becomes that of the request as to_json() writes it.
std::variant<RecipePair, std::string> recipes_of(const ScheduleRequest& how, const Problem& problem, int ranks,
                                                 std::string& layout) {
  if (how.layout.empty()) return resolve_pair(how.schedule, problem, ranks);
  const auto placement = std::make_shared<const Placement>(placement_from_json(how.layout, "layout"));
  layout = to_json(*placement);
  if (placement->ranks != ranks) {
    refuse(fmt::format("the layout is for {} ranks (there are {}): give one for these", placement->ranks, ranks));
  }
  return RecipePair{recipe_of(placement, Pass::forward), recipe_of(placement, Pass::backward)};
}

}  // namespace

Planned plan(const Problem& problem, int ranks, const ScheduleRequest& request) {
  auto decision = decided(problem, ranks, request);
  if (auto* const why = std::get_if<WhyNot>(&decision)) return std::move(*why);
  const ScheduleRequest& how = std::get<ScheduleRequest>(decision);
  const auto why_not = [&](WhyNot::Kind kind, std::string reason, std::string message) {
    return WhyNot{kind, how.schedule, ranks, std::move(reason), std::move(message)};
  };
  auto state = std::make_unique<AttentionPlan::State>();
  auto resolved = recipes_of(how, problem, ranks, state->layout);
  if (const auto* const reason = std::get_if<std::string>(&resolved)) {
    return why_not(WhyNot::Kind::does_not_apply, *reason,
                   fmt::format("schedule {} does not apply to this problem on {} ranks ({}): choose another, or auto",
                               how.schedule, ranks, *reason));
  }
  const RecipePair& recipes = std::get<RecipePair>(resolved);
  const auto* const machine = std::get_if<Machine>(&request.machine);
  if (machine != nullptr) check_described(*machine, ranks, problem.dtype);
  state->routes = {*how.node_size, *how.ahead};
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (pass == Pass::backward && how.passes == Passes::forward) break;
    const Recipe& recipe = pass == Pass::forward ? recipes.forward : recipes.backward;
    const auto tiles = std::make_shared<const Tiles>(shard(problem, ranks, recipe.layout, recipe.groups));
    try {
      auto proved = prove(Lowering(recipe.name, tiles, recipe.table(tiles, *how.node_size), pass,
                                   how.mode.value_or(recipe.mode), state->routes),
                          tiles, machine);
      if (auto* const wrong = std::get_if<std::string>(&proved)) return not_proved(recipe.name, ranks, *wrong);
      state->passes[pass].emplace(std::get<ProvedPass>(std::move(proved)));
    } catch (const TooManyMessages& refused) {
      return why_not(WhyNot::Kind::too_many_messages, refused.reason(), refused.what());
    }
  }
  AttentionPlan made(std::move(state));
  check_name(made.name());
  if (made.memory_bytes() <= how.memory_bytes) return made;
  const std::string needed = format_bytes(static_cast<double>(made.memory_bytes()));
  const std::string allowed = format_bytes(static_cast<double>(how.memory_bytes));
  const char* const what = how.passes == Passes::both ? "both passes need" : "forward needs";
  return why_not(WhyNot::Kind::too_large, fmt::format("{} {} a rank (memory_bytes allows {})", what, needed, allowed),
                 fmt::format("{} needs {} a rank (memory_bytes allows {}): choose another schedule or more ranks",
                             made.name(), needed, allowed));
}

AttentionPlan::AttentionPlan(std::unique_ptr<State> state) : state_(std::move(state)) {}
// A decided request names no machine: what the plan keeps is for runs.
AttentionPlan::AttentionPlan(const Problem& problem, int ranks, const ScheduleRequest& request)
    : AttentionPlan(or_refuse(plan(problem, ranks, or_refuse(decided(problem, ranks, request))))) {}
AttentionPlan::AttentionPlan(std::vector<Schedule> schedules) : state_(std::make_unique<State>()) {
  for (Schedule& schedule : schedules) {
    auto& place = state_->passes[schedule.outline.pass];
    if (place.has_value()) {
      refuse(fmt::format("two programs of the {} pass (one a pass is run): give one", name_of(schedule.outline.pass)));
    }
    check(schedule.outline, schedule.ranks.size());
    const auto tiles = std::make_shared<const Tiles>(schedule.outline.sharding);
    const std::string name = schedule.outline.name;
    auto proved = prove(std::move(schedule), tiles, nullptr);
    if (auto* const wrong = std::get_if<std::string>(&proved)) refuse(not_proved(name, tiles->ranks(), *wrong).message);
    place.emplace(std::get<ProvedPass>(std::move(proved)));
  }
  if (!has(Pass::forward)) refuse("no program of the forward pass (the backward pass needs its results): give one");
  if (has(Pass::backward)) check_pair(outline(Pass::forward).sharding, outline(Pass::backward).sharding);
  state_->routes.node_size = outline(Pass::forward).node_size;
  check_name(name());
}
AttentionPlan::~AttentionPlan() = default;
AttentionPlan::AttentionPlan(AttentionPlan&&) noexcept = default;
AttentionPlan& AttentionPlan::operator=(AttentionPlan&&) noexcept = default;

int AttentionPlan::ranks() const { return outline(Pass::forward).sharding.ranks; }
std::string AttentionPlan::name() const {
  const std::string& forward = outline(Pass::forward).name;
  if (!has(Pass::backward) || outline(Pass::backward).name == forward) return forward;
  return forward + "/" + outline(Pass::backward).name;
}
Routes AttentionPlan::routes() const { return state_->routes; }
const std::string& AttentionPlan::layout() const { return state_->layout; }
bool AttentionPlan::has(Pass pass) const { return state_->passes[pass].has_value(); }
const Outline& AttentionPlan::outline(Pass pass) const { return state_->at(pass).outline(); }
const Tiles& AttentionPlan::tiles(Pass pass) const { return *state_->at(pass).tiles; }
const Counts& AttentionPlan::counts(Pass pass) const { return state_->at(pass).counts; }
std::int64_t AttentionPlan::memory_bytes() const {
  std::vector<const Counts*> passes;
  for (const auto& pass : state_->passes) {
    if (pass) passes.push_back(&pass->counts);
  }
  return memory_side_by_side(passes);
}
std::uint64_t AttentionPlan::fingerprint() const {
  return fingerprint_of(state_->at(Pass::forward).fingerprint(), has(Pass::backward),
                        has(Pass::backward) ? state_->at(Pass::backward).fingerprint() : 0);
}
RankProgram AttentionPlan::program(Pass pass, Rank rank) const { return state_->at(pass).program(rank); }

Schedule AttentionPlan::schedule(Pass pass) const {
  Schedule schedule{outline(pass), std::vector<RankProgram>(index(ranks()))};
  for_each_rank(ranks(), [&](Rank rank) { schedule.ranks[index(rank)] = program(pass, rank); });
  return schedule;
}

Timeline AttentionPlan::predict(Pass pass, const Machine& machine, int threads) const {
  std::vector<ProgramSketch> made;
  return simulate(outline(pass), state_->at(pass).sketched(machine.tiles.block, made), machine, threads);
}

namespace {

/// What a rank sends to other nodes of the machine, whether its routes know of nodes or not.
std::int64_t far_bytes(const ProgramSketch& sketch, const Machine& machine) {
  std::int64_t bytes = 0;
  for (const ProgramSketch::JoinedMessage& message : sketch.sends) {
    if (machine.node_of(sketch.rank) != machine.node_of(message.peer)) bytes += message.bytes;
  }
  return bytes;
}

/// What is other than the proof counted if keys and values are sent as latents.
void count_latents(const std::vector<ProgramSketch>& sketches, PassPlan& pass) {
  for (const ProgramSketch& sketch : sketches) {
    std::int64_t bytes = 0;
    for (const ProgramSketch::JoinedMessage& message : sketch.sends) bytes += message.bytes;
    pass.counts.bytes_sent[index(sketch.rank)] = bytes;
    double flops = 0;
    for (const ProgramSketch::Step& step : sketch.steps) flops += step.expansion_flops;
    pass.expansion_flops = std::max(pass.expansion_flops, flops);
  }
}

}  // namespace

std::vector<PassPlan> predict(const AttentionPlan& plan, const Machine* machine, int threads, const Latents* latents) {
  std::vector<PassPlan> passes;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (!plan.has(pass)) continue;
    std::vector<ProgramSketch> made;
    const auto& sketches = plan.state_->at(pass).sketched(machine != nullptr ? machine->tiles.block : 1, made, latents);
    const Outline& outline = plan.outline(pass);
    PassPlan& one = passes.emplace_back(PassPlan{plan.name(), outline.sharding.problem.seq_q, pass, plan.ranks(),
                                                 outline.mode, plan.routes(), plan.counts(pass), ideal_idle(sketches)});
    if (latents != nullptr) count_latents(sketches, one);
    if (machine == nullptr) continue;
    for (std::size_t rank = 0; machine->nodes > 1 && rank < sketches.size(); ++rank)
      one.counts.bytes_far[rank] = far_bytes(sketches[rank], *machine);
    one.lower_bound_s = lower_bound(outline, sketches, *machine, threads);
    one.predicted_s = simulate(outline, sketches, *machine, threads).seconds;
  }
  return passes;
}

std::string to_json(const PassPlan& plan) {
  nlohmann::ordered_json json{{"schema_version", 1}};
  json.update(RowFields::json_of(plan));
  return json.dump();
}

}  // namespace distattn
