#include "distattn/attention.hpp"

#include <array>
#include <optional>
#include <utility>
#include <variant>

#include <fmt/core.h>

#include "core/src/parallel.hpp"
#include "core/src/run/bindings.hpp"
#include "distattn/choose.hpp"
#include "distattn/simulate.hpp"

namespace distattn {
namespace {

/// A pass that was proved, lowered here or made elsewhere, and what its proof counted.
struct ProvedPass {
  std::variant<Lowering, Schedule> source;
  std::shared_ptr<const Tiles> tiles;
  Counts counts;

  const Outline& outline() const {
    const auto* lowering = std::get_if<Lowering>(&source);
    return lowering ? lowering->outline() : std::get<Schedule>(source).outline;
  }
  RankProgram program(Rank rank) const {
    const auto* lowering = std::get_if<Lowering>(&source);
    return lowering ? lowering->program(rank) : std::get<Schedule>(source).ranks[static_cast<std::size_t>(rank)];
  }
};

RecipePair resolve(const std::string& name, const Problem& problem, int ranks) {
  auto resolved = resolve_pair(name, problem, ranks);
  if (const auto* reason = std::get_if<std::string>(&resolved)) {
    refuse(fmt::format("schedule {} does not apply to this problem on {} ranks ({}) choose another, or auto", name,
                       ranks, *reason));
  }
  return std::get<RecipePair>(std::move(resolved));
}

/// Proves every rank's program.
ProvedPass prove(std::variant<Lowering, Schedule> source, std::shared_ptr<const Tiles> tiles) {
  ProvedPass pass{std::move(source), std::move(tiles), {}};
  Verifier verifier(pass.outline(), pass.tiles);
  for_each_rank(pass.tiles->ranks(), [&](Rank rank) { verifier.add(rank, pass.program(rank)); });
  VerifyReport report = verifier.finish();
  if (!report.proved()) {
    refuse(fmt::format("schedule {} fails its proof ({}: {}; {} findings) correct the program", pass.outline().name,
                       name_of(report.findings[0].kind), report.findings[0].message, report.findings.size()));
  }
  pass.counts = std::move(report.counts);
  return pass;
}

/// Refuses programs whose results are not each other's input: of other problems, or other owners of the tokens.
void check_pair(const Sharding& forward, const Sharding& backward) {
  if (forward.problem != backward.problem) {
    refuse("forward and backward programs compute different problems (one's results are the other's input) make both "
           "for one shape, mask, scale and type");
  }
  if (forward.ranks != backward.ranks || forward.queries != backward.queries || forward.keys != backward.keys) {
    refuse("forward and backward programs shard differently (one's results are the other's input) use one layout");
  }
}

constexpr std::size_t index(Pass pass) { return static_cast<std::size_t>(pass); }

}  // namespace

struct AttentionPlan::State {
  std::array<std::optional<ProvedPass>, 2> passes;

  const ProvedPass& at(Pass pass) const {
    DISTATTN_EXPECT(passes[index(pass)].has_value());
    return *passes[index(pass)];
  }
};

AttentionPlan::AttentionPlan(const Problem& problem, int ranks, const AttentionOptions& options)
    : state_(std::make_unique<State>()) {
  check(problem);
  const Passes passes = options.backward ? Passes::both : Passes::forward;
  const std::string name =
      options.schedule == "auto" ? choose_schedule(problem, ranks, options.routes, passes) : options.schedule;
  const RecipePair recipes = resolve(name, problem, ranks);
  const auto add = [&](const Recipe& recipe, Pass pass) {
    const auto tiles = std::make_shared<const Tiles>(shard(problem, ranks, recipe.layout, recipe.groups));
    Lowering lowering(recipe.name, tiles, recipe.table(tiles, options.routes.node_size), pass,
                      options.own_mode ? recipe.mode : options.mode, options.routes);
    state_->passes[index(pass)].emplace(prove(std::move(lowering), tiles));
  };
  add(recipes.forward, Pass::forward);
  if (options.backward) add(recipes.backward, Pass::backward);
}
AttentionPlan::AttentionPlan(std::vector<Schedule> schedules) : state_(std::make_unique<State>()) {
  for (Schedule& schedule : schedules) {
    auto& place = state_->passes[index(schedule.outline.pass)];
    if (place.has_value()) {
      refuse(fmt::format("two programs of the {} pass (one a pass is run) give one", name_of(schedule.outline.pass)));
    }
    check(schedule.outline, schedule.ranks.size());
    const auto tiles = std::make_shared<const Tiles>(schedule.outline.sharding);
    place.emplace(prove(std::move(schedule), tiles));
  }
  if (!has(Pass::forward)) refuse("no program of the forward pass (the backward pass needs its results) give one");
  if (has(Pass::backward)) check_pair(outline(Pass::forward).sharding, outline(Pass::backward).sharding);
}
AttentionPlan::~AttentionPlan() = default;
AttentionPlan::AttentionPlan(AttentionPlan&&) noexcept = default;

int AttentionPlan::ranks() const { return outline(Pass::forward).sharding.ranks; }
bool AttentionPlan::has(Pass pass) const { return state_->passes[index(pass)].has_value(); }
const Outline& AttentionPlan::outline(Pass pass) const { return state_->at(pass).outline(); }
const Tiles& AttentionPlan::tiles(Pass pass) const { return *state_->at(pass).tiles; }
const Counts& AttentionPlan::counts(Pass pass) const { return state_->at(pass).counts; }
RankProgram AttentionPlan::program(Pass pass, Rank rank) const { return state_->at(pass).program(rank); }

Schedule AttentionPlan::schedule(Pass pass) const {
  Schedule schedule{outline(pass), std::vector<RankProgram>(static_cast<std::size_t>(ranks()))};
  for_each_rank(ranks(), [&](Rank rank) { schedule.ranks[static_cast<std::size_t>(rank)] = program(pass, rank); });
  return schedule;
}

Timeline AttentionPlan::predict(Pass pass, const Machine& machine, int threads) const {
  std::vector<ProgramSketch> sketches(static_cast<std::size_t>(ranks()));
  for_each_rank(ranks(), [&](Rank rank) {
    sketches[static_cast<std::size_t>(rank)] =
        sketch(outline(pass), tiles(pass), rank, program(pass, rank), machine.tiles.block);
  });
  return simulate(outline(pass), sketches, machine, threads);
}

struct Attention::State {
  /// This rank's part of one pass.
  struct Running {
    Running(const AttentionPlan& plan, Pass pass, Device& device, Transport& transport)
        : program(plan.program(pass, transport.rank())),
          executor(plan.outline(pass), program, transport.rank(), device, transport) {}
    RankProgram program;
    Executor executor;
  };

  State(std::shared_ptr<const AttentionPlan> shared_plan, Device& device, Transport& transport)
      : plan(std::move(shared_plan)), rank(transport.rank()) {
    if (plan->ranks() != transport.size()) {
      refuse(
          fmt::format("a plan for {} ranks cannot run on {} (shards and programs differ) plan for the ranks there are",
                      plan->ranks(), transport.size()));
    }
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      if (plan->has(pass)) passes[index(pass)].emplace(*plan, pass, device, transport);
    }
  }

  Running& at(Pass pass) {
    if (!passes[index(pass)]) {
      refuse("the backward pass was not prepared (AttentionOptions::backward is off) construct with it on");
    }
    return *passes[index(pass)];
  }

  /// Tensors are refused here, before the executor would end every rank's run because of them.
  const Timeline& run(Pass pass, const Bindings& bindings) {
    Running& running = at(pass);
    check(bindings, plan->outline(pass), rank);
    return running.executor.run(bindings);
  }

  std::shared_ptr<const AttentionPlan> plan;
  Rank rank;
  std::array<std::optional<Running>, 2> passes;
};

Attention::Attention(const Problem& problem, const AttentionOptions& options, Device& device, Transport& transport)
    : Attention(std::make_shared<const AttentionPlan>(problem, transport.size(), options), device, transport) {}
Attention::Attention(std::shared_ptr<const AttentionPlan> plan, Device& device, Transport& transport)
    : state_(std::make_unique<State>(std::move(plan), device, transport)) {}
Attention::~Attention() = default;
Attention::Attention(Attention&&) noexcept = default;

const AttentionPlan& Attention::plan() const { return *state_->plan; }
const Outline& Attention::outline(Pass pass) const { return state_->plan->outline(pass); }
const RankProgram& Attention::program(Pass pass) const { return state_->at(pass).program; }
const Counts& Attention::counts(Pass pass) const { return state_->plan->counts(pass); }

std::int64_t Attention::query_tokens() const {
  return owned_tokens(outline(Pass::forward).sharding.queries, state_->rank);
}
std::int64_t Attention::key_tokens() const { return owned_tokens(outline(Pass::forward).sharding.keys, state_->rank); }
std::vector<std::int64_t> Attention::query_positions() const {
  return positions(outline(Pass::forward).sharding.queries, state_->rank);
}
std::vector<std::int64_t> Attention::key_positions() const {
  return positions(outline(Pass::forward).sharding.keys, state_->rank);
}

const Timeline& Attention::forward(const Bindings& bindings) { return state_->run(Pass::forward, bindings); }
const Timeline& Attention::backward(const Bindings& bindings) { return state_->run(Pass::backward, bindings); }

}  // namespace distattn
