#include "distattn/attention.hpp"

#include <array>
#include <optional>
#include <utility>
#include <variant>

#include <fmt/core.h>

#include "core/src/parallel.hpp"
#include "core/src/run/agreement.hpp"
#include "core/src/run/pass_queue.hpp"
#include "core/src/schedule/digest.hpp"
#include "core/src/words.hpp"
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
    refuse(fmt::format("schedule {} does not apply to this problem on {} ranks ({}): choose another, or auto", name,
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
    refuse(fmt::format("schedule {} fails its proof ({}: {}; {} findings): correct the program", pass.outline().name,
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
        "forward and backward programs compute different problems (one's results are the other's input): make both "
        "for one shape, mask, scale and type");
  }
  if (forward.ranks != backward.ranks || forward.queries != backward.queries || forward.keys != backward.keys) {
    refuse("forward and backward programs shard differently (one's results are the other's input): use one layout");
  }
}

/// Rank 0 tells the others what its schedule is called.
void check_name(const std::string& name) {
  if (name.size() <= Agreement::longest_schedule) return;
  refuse(fmt::format("a schedule's name has {} characters (ranks tell it to each other in {} at most): shorten it",
                     name.size(), Agreement::longest_schedule));
}

void check_ranks(int ranks) {
  if (ranks < 1) refuse(fmt::format("{} ranks (there is one at least): plan for some", ranks));
}

/// Nothing where a named schedule is asked for and no machine that could have nodes.
std::optional<Machine> machine_of(const AttentionOptions& options) {
  const auto* const name = std::get_if<std::string>(&options.machine);
  if (name == nullptr) return std::get<Machine>(options.machine);
  if (name->empty() && options.schedule != "auto") return {};
  return find_machine(name->empty() ? "this" : *name);
}

constexpr std::size_t index(Pass pass) { return static_cast<std::size_t>(pass); }

}  // namespace

Routes routes_of(const AttentionOptions& options, const Machine& machine, int ranks) {
  const int ahead = options.ahead.value_or(0);
  if (options.node_size < 0 || ahead < 0) return {options.node_size, ahead};  // Lowering refuses them
  const bool machine_says = options.node_size == 0 && machine.nodes > 1;
  const int node_size = machine_says ? machine.ranks_per_node : options.node_size;
  if (0 < node_size && node_size < ranks) return {node_size, ahead};
  if (ahead > 0) {
    refuse(fmt::format("ahead {} (one node has {} ranks: nothing travels between nodes): {}", ahead, ranks,
                       node_size == 0 ? "add node_size" : "use more ranks, or smaller nodes"));
  }
  return {};
}

ChoiceLimits limits_of(const AttentionOptions& options, const Routes& routes, const Machine& machine, int ranks) {
  ChoiceLimits limits;
  limits.passes = options.backward ? Passes::both : Passes::forward;
  limits.node_size = routes.node_size;
  limits.ahead = options.ahead;
  if (!options.own_mode) limits.mode = options.mode;
  limits.memory_bytes = options.memory_bytes;
  limits.threads = options.threads > 0 ? options.threads : machine.threads_of_rank(ranks);
  return limits;
}

void check_memory(const std::string& name, const std::vector<const Counts*>& passes, std::int64_t memory_bytes) {
  const std::int64_t needed = memory_side_by_side(passes);
  if (needed <= memory_bytes) return;
  refuse(fmt::format("{} needs {} a rank (memory_bytes allows {}): choose another schedule or more ranks", name,
                     bytes_in_words(static_cast<double>(needed)), bytes_in_words(static_cast<double>(memory_bytes))));
}

AttentionOptions decided(const Problem& problem, int ranks, AttentionOptions options) {
  check_ranks(ranks);
  check(problem);
  const Machine machine = machine_of(options).value_or(Machine()).in_nodes_of(options.node_size);
  Routes routes = routes_of(options, machine, ranks);
  if (options.schedule == "auto") {
    Choice choice = choose_schedule(problem, ranks, machine, limits_of(options, routes, machine, ranks));
    options.schedule = std::move(choice.name);
    routes = choice.routes;
  }
  options.node_size = routes.node_size;
  options.ahead = routes.ahead;
  options.machine = "";
  return options;
}

struct AttentionPlan::State {
  std::array<std::optional<ProvedPass>, 2> passes;
  Routes routes;

  const ProvedPass& at(Pass pass) const {
    DISTATTN_EXPECT(passes[index(pass)].has_value());
    return *passes[index(pass)];
  }

  std::vector<const Counts*> counts() const {
    std::vector<const Counts*> all;
    for (const auto& pass : passes) {
      if (pass) all.push_back(&pass->counts);
    }
    return all;
  }
};

AttentionPlan::AttentionPlan(const Problem& problem, int ranks, const AttentionOptions& options)
    : state_(std::make_unique<State>()) {
  const AttentionOptions how = decided(problem, ranks, options);
  state_->routes = {how.node_size, *how.ahead};
  const RecipePair recipes = resolve(how.schedule, problem, ranks);
  const auto add = [&](const Recipe& recipe, Pass pass) {
    const auto tiles = std::make_shared<const Tiles>(shard(problem, ranks, recipe.layout, recipe.groups));
    Lowering lowering(recipe.name, tiles, recipe.table(tiles, how.node_size), pass,
                      how.own_mode ? recipe.mode : how.mode, state_->routes);
    state_->passes[index(pass)].emplace(prove(std::move(lowering), tiles));
  };
  add(recipes.forward, Pass::forward);
  if (how.backward) add(recipes.backward, Pass::backward);
  check_name(this->name());
  check_memory(this->name(), state_->counts(), how.memory_bytes);
}
AttentionPlan::AttentionPlan(std::vector<Schedule> schedules) : state_(std::make_unique<State>()) {
  for (Schedule& schedule : schedules) {
    auto& place = state_->passes[index(schedule.outline.pass)];
    if (place.has_value()) {
      refuse(fmt::format("two programs of the {} pass (one a pass is run): give one", name_of(schedule.outline.pass)));
    }
    check(schedule.outline, schedule.ranks.size());
    const auto tiles = std::make_shared<const Tiles>(schedule.outline.sharding);
    place.emplace(prove(std::move(schedule), tiles));
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
  await_passes(device, transport);  // the agreement uses the transport too
  if (plan->ranks() != transport.size()) {
    refuse(
        fmt::format("a plan for {} ranks cannot run on {} (shards and programs differ): plan for the ranks there are",
                    plan->ranks(), transport.size()));
  }
  Agreement agreement(device, transport);
  if (!agreement.possible()) return plan;
  if (transport.rank() == 0)
    agreement.announce({plan->fingerprint(), plan->name(), plan->routes()});
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
    options.node_size = first.routes.node_size;
    options.ahead = first.routes.ahead;
    options.machine = "";
    options.memory_bytes = AttentionOptions().memory_bytes;  // rank 0's counted
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
  agreement.announce({plan->fingerprint(), plan->name(), plan->routes()});
  return plan;
}

std::shared_ptr<const AttentionPlan> agreed_plan(const Problem& problem, const AttentionOptions& options,
                                                 Device& device, Transport& transport) {
  await_passes(device, transport);
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
      : plan(std::move(shared_plan)), rank(transport.rank()), queue(device, transport) {
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
      refuse("the backward pass was not prepared (AttentionOptions::backward is off): construct with it on");
    }
    return *passes[index(pass)];
  }

  std::shared_ptr<const AttentionPlan> plan;
  Rank rank;
  std::array<std::optional<Running>, 2> passes;
  PassQueue queue;  // ends before what it runs
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
  return state_->queue.run(state_->at(Pass::forward).executor, bindings);
}
const Timeline& Attention::backward(const Bindings& bindings) {
  return state_->queue.run(state_->at(Pass::backward).executor, bindings);
}
Event Attention::forward(const Bindings& bindings, const Event& after) {
  return state_->queue.queue(state_->at(Pass::forward).executor, bindings, after);
}
Event Attention::backward(const Bindings& bindings, const Event& after) {
  return state_->queue.queue(state_->at(Pass::backward).executor, bindings, after);
}
void Attention::check() { state_->queue.check(); }
void Attention::wait() { state_->queue.wait(); }
const Timeline& Attention::timeline(Pass pass) {
  Executor& executor = state_->at(pass).executor;
  state_->queue.wait();
  return executor.timeline();
}

}  // namespace distattn
