#include "distattn/attention.hpp"

#include <array>
#include <optional>
#include <utility>
#include <variant>

#include <fmt/core.h>

#include "core/src/parallel.hpp"
#include "core/src/run/agreement.hpp"
#include "core/src/schedule/digest.hpp"
#include "distattn/choose.hpp"
#include "distattn/simulate.hpp"

namespace distattn {

/// A pass that was proved, lowered here or made elsewhere, and what its proof counted.
struct ProvedPass {
  std::variant<Lowering, Schedule> source;
  std::shared_ptr<const Tiles> tiles;
  Counts counts;
  std::uint64_t fingerprint = 0;

  const Outline& outline() const {
    const auto* lowering = std::get_if<Lowering>(&source);
    return lowering ? lowering->outline() : std::get<Schedule>(source).outline;
  }
  RankProgram program(Rank rank) const {
    const auto* lowering = std::get_if<Lowering>(&source);
    return lowering ? lowering->program(rank) : std::get<Schedule>(source).ranks[static_cast<std::size_t>(rank)];
  }
};

namespace {

RecipePair resolve(const std::string& name, const Problem& problem, int ranks) {
  auto resolved = resolve_pair(name, problem, ranks);
  if (const auto* reason = std::get_if<std::string>(&resolved)) {
    refuse(fmt::format("schedule {} does not apply to this problem on {} ranks ({}) choose another, or auto", name,
                       ranks, *reason));
  }
  return std::get<RecipePair>(std::move(resolved));
}

std::uint64_t fingerprint_of(const auto&... items) {
  Digest digest;
  (digest.add(items), ...);
  return digest.value();
}

/// Proves every rank's program.
ProvedPass prove(std::variant<Lowering, Schedule> source, std::shared_ptr<const Tiles> tiles) {
  ProvedPass pass{std::move(source), std::move(tiles), {}};
  Verifier verifier(pass.outline(), pass.tiles);
  std::vector<std::uint64_t> fingerprints(static_cast<std::size_t>(pass.tiles->ranks()));
  for_each_rank(pass.tiles->ranks(), [&](Rank rank) {
    const RankProgram program = pass.program(rank);
    verifier.add(rank, program);
    fingerprints[static_cast<std::size_t>(rank)] = fingerprint_of(program);
  });
  VerifyReport report = verifier.finish();
  if (!report.proved()) {
    refuse(fmt::format("schedule {} fails its proof ({}: {}; {} findings) correct the program", pass.outline().name,
                       name_of(report.findings[0].kind), report.findings[0].message, report.findings.size()));
  }
  pass.counts = std::move(report.counts);
  pass.fingerprint = fingerprint_of(pass.outline(), fingerprints);
  return pass;
}

/// Refuses programs whose results are not each other's input: of other problems, or other owners of the tokens.
void check_pair(const Sharding& forward, const Sharding& backward) {
  if (forward.problem != backward.problem) {
    refuse(
        "forward and backward programs compute different problems (one's results are the other's input) make both "
        "for one shape, mask, scale and type");
  }
  if (forward.ranks != backward.ranks || forward.queries != backward.queries || forward.keys != backward.keys) {
    refuse("forward and backward programs shard differently (one's results are the other's input) use one layout");
  }
}

/// Rank 0 tells the others what its schedule is called.
void check_name(const std::string& name) {
  if (name.size() <= Agreement::longest_schedule) return;
  refuse(fmt::format("a schedule's name has {} characters (ranks tell it to each other in {} at most) shorten it",
                     name.size(), Agreement::longest_schedule));
}

/// What auto stands for on this machine.
std::string chosen_schedule(const Problem& problem, int ranks, const AttentionOptions& options) {
  const Machine machine = find_machine("this");
  ChoiceLimits limits;
  limits.passes = options.backward ? Passes::both : Passes::forward;
  limits.node_size = options.routes.node_size;
  limits.ahead = options.routes.ahead;
  if (!options.own_mode) limits.mode = options.mode;
  limits.threads = machine.threads_of_rank(ranks);
  return choose_schedule(problem, ranks, machine, limits).name;
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
  if (ranks < 1) refuse(fmt::format("{} ranks (there is one at least) plan for some", ranks));
  check(problem);
  const std::string name = options.schedule == "auto" ? chosen_schedule(problem, ranks, options) : options.schedule;
  const RecipePair recipes = resolve(name, problem, ranks);
  const auto add = [&](const Recipe& recipe, Pass pass) {
    const auto tiles = std::make_shared<const Tiles>(shard(problem, ranks, recipe.layout, recipe.groups));
    Lowering lowering(recipe.name, tiles, recipe.table(tiles, options.routes.node_size), pass,
                      options.own_mode ? recipe.mode : options.mode, options.routes);
    state_->passes[index(pass)].emplace(prove(std::move(lowering), tiles));
  };
  add(recipes.forward, Pass::forward);
  if (options.backward) add(recipes.backward, Pass::backward);
  check_name(this->name());
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
bool AttentionPlan::has(Pass pass) const { return state_->passes[index(pass)].has_value(); }
const Outline& AttentionPlan::outline(Pass pass) const { return state_->at(pass).outline(); }
const Tiles& AttentionPlan::tiles(Pass pass) const { return *state_->at(pass).tiles; }
const Counts& AttentionPlan::counts(Pass pass) const { return state_->at(pass).counts; }
std::uint64_t AttentionPlan::fingerprint() const {
  return fingerprint_of(state_->at(Pass::forward).fingerprint, has(Pass::backward),
                        has(Pass::backward) ? state_->at(Pass::backward).fingerprint : 0);
}
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

namespace {

/// A plan that others may share, where all ranks have the same.
std::shared_ptr<const AttentionPlan> agreed(std::shared_ptr<const AttentionPlan> plan, Device& device,
                                            Transport& transport) {
  if (plan->ranks() != transport.size()) {
    refuse(fmt::format("a plan for {} ranks cannot run on {} (shards and programs differ) plan for the ranks there are",
                       plan->ranks(), transport.size()));
  }
  Agreement agreement(device, transport);
  if (!agreement.possible()) return plan;
  if (transport.rank() == 0)
    agreement.announce(plan->fingerprint(), plan->name());
  else
    agreement.compare(agreement.hear(), plan->fingerprint());
  return plan;
}

/// What auto stands for depends on the machine, its calibration and its cores: rank 0 chooses for all ranks.
std::shared_ptr<const AttentionPlan> plan_chosen_by_first(const Problem& problem, AttentionOptions options,
                                                          Device& device, Transport& transport) {
  const auto made = [&] { return std::make_shared<const AttentionPlan>(problem, transport.size(), options); };
  Agreement agreement(device, transport);
  if (!agreement.possible()) return made();
  if (transport.rank() != 0) {
    const Agreement::Decision first = agreement.hear();
    options.schedule = first.schedule;
    auto plan = made();
    agreement.compare(first, plan->fingerprint());
    return plan;
  }
  std::shared_ptr<const AttentionPlan> plan;
  try {
    plan = made();
  } catch (...) {
    agreement.announce(as_error(std::current_exception()));
    throw;
  }
  agreement.announce(plan->fingerprint(), plan->name());
  return plan;
}

std::shared_ptr<const AttentionPlan> agreed_plan(const Problem& problem, const AttentionOptions& options,
                                                 Device& device, Transport& transport) {
  if (options.schedule == "auto") return plan_chosen_by_first(problem, options, device, transport);
  return agreed(std::make_shared<const AttentionPlan>(problem, transport.size(), options), device, transport);
}

/// Ends the other ranks, which would wait for this one for good. What is refused is refused by every rank, and leaves
/// the transport whole.
void end_others(const Error& error, Transport& transport) {
  if (error.kind() != ErrorKind::usage && transport.size() > 1) transport.abort(error);
}

}  // namespace

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
    try {
      for (const Pass pass : {Pass::forward, Pass::backward}) {
        if (plan->has(pass)) passes[index(pass)].emplace(*plan, pass, device, transport);
      }
    } catch (...) {
      end_others(as_error(std::current_exception()), transport);
      throw;
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
    : state_(std::make_unique<State>(agreed_plan(problem, options, device, transport), device, transport)) {}
Attention::Attention(std::shared_ptr<const AttentionPlan> plan, Device& device, Transport& transport)
    : state_(std::make_unique<State>(agreed(std::move(plan), device, transport), device, transport)) {}
Attention::~Attention() = default;
Attention::Attention(Attention&&) noexcept = default;
Attention& Attention::operator=(Attention&&) noexcept = default;

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

const Timeline& Attention::forward(const Bindings& bindings) {
  return state_->at(Pass::forward).executor.run(bindings);
}
const Timeline& Attention::backward(const Bindings& bindings) {
  return state_->at(Pass::backward).executor.run(bindings);
}

}  // namespace distattn
