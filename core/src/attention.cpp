#include "distattn/attention.hpp"

#include <array>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "distattn/choose.hpp"
#include "parallel.hpp"

namespace distattn {
namespace {

/// A pass that was lowered, and what its proof counted.
struct ProvedPass {
  Lowering lowering;
  Counts counts;
};

RecipePair resolve(const std::string& name, const Problem& problem, int ranks) {
  auto resolved = resolve_pair(name, problem, ranks);
  if (const auto* reason = std::get_if<std::string>(&resolved)) {
    refuse(fmt::format("schedule {} does not apply to this problem on {} ranks ({}) choose another, or auto", name,
                       ranks, *reason));
  }
  return std::get<RecipePair>(std::move(resolved));
}

/// Every rank's program is proved and dropped.
Counts prove(const Lowering& lowering, const std::shared_ptr<const Tiles>& tiles) {
  Verifier verifier(lowering.outline(), tiles);
  for_each_rank(tiles->ranks(), [&](Rank rank) { verifier.add(rank, lowering.program(rank)); });
  VerifyReport report = verifier.finish();
  if (!report.proved()) {
    refuse(fmt::format("schedule {} fails its proof ({}: {}; {} findings) run distattn plan to see them",
                       lowering.outline().name, name_of(report.findings[0].kind), report.findings[0].message,
                       report.findings.size()));
  }
  return std::move(report.counts);
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
    Counts counts = prove(lowering, tiles);
    state_->passes[index(pass)].emplace(ProvedPass{std::move(lowering), std::move(counts)});
  };
  add(recipes.forward, Pass::forward);
  if (options.backward) add(recipes.backward, Pass::backward);
}
AttentionPlan::~AttentionPlan() = default;
AttentionPlan::AttentionPlan(AttentionPlan&&) noexcept = default;

int AttentionPlan::ranks() const { return outline(Pass::forward).sharding.ranks; }
bool AttentionPlan::has(Pass pass) const { return state_->passes[index(pass)].has_value(); }
const Outline& AttentionPlan::outline(Pass pass) const { return state_->at(pass).lowering.outline(); }
const Tiles& AttentionPlan::tiles(Pass pass) const { return state_->at(pass).lowering.tiles(); }
const Counts& AttentionPlan::counts(Pass pass) const { return state_->at(pass).counts; }
RankProgram AttentionPlan::program(Pass pass, Rank rank) const { return state_->at(pass).lowering.program(rank); }

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

std::vector<std::int64_t> Attention::query_positions() const {
  return positions(outline(Pass::forward).sharding.queries, state_->rank);
}
std::vector<std::int64_t> Attention::key_positions() const {
  return positions(outline(Pass::forward).sharding.keys, state_->rank);
}

const Timeline& Attention::forward(const Bindings& bindings) {
  return state_->at(Pass::forward).executor.run(bindings);
}
const Timeline& Attention::backward(const Bindings& bindings) {
  return state_->at(Pass::backward).executor.run(bindings);
}

}  // namespace distattn
