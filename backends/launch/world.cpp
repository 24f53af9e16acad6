#include "distattn/launch.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "backends/launch/choice.hpp"
#include "backends/launch/core_share.hpp"
#include "backends/launch/launcher.hpp"
#include "backends/launch/launcher_watch.hpp"
#include "backends/launch/rank_variables.hpp"
#include "backends/registration.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/index.hpp"
#include "distattn/inproc.hpp"
#include "distattn/registry.hpp"

namespace distattn {
namespace {

using namespace backends::launch;
using backends::launchers;

/// A transport between processes has a use for a launcher even if it started one alone.
std::string bootstrap_for(const LaunchOptions& options) {
  if (!options.bootstrap.empty()) return options.bootstrap;
  const bool of_threads = options.transport.empty() || options.transport == "inproc";
  return (of_threads ? choose(launchers(), process_variable) : started_by(launchers(), process_variable)).bootstrap;
}

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Where the part that `at` is in begins, in a list whose parts end with a comma or a semicolon.
std::size_t begin_before(std::string_view text, std::size_t at) {
  while (at >= 2 && !(text[at - 1] == ' ' && (text[at - 2] == ',' || text[at - 2] == ';'))) --at;
  return at >= 2 ? at : 0;
}

/// Without the parts at both ends that are the same in another text: `before` and `after` characters are.
std::string_view part_between(std::string_view text, std::size_t before, std::size_t after) {
  const std::size_t begin = begin_before(text, before);
  std::size_t end = text.size() - after;
  while (end < text.size() && text.substr(end, 2) != ", " && text.substr(end, 2) != "; ") ++end;
  return text.substr(begin, end - begin);
}

/// "rank 1 differs from rank 0 in its options (--backend cpu against --backend kokkos:serial)": of long lists only what
/// stands between what they have in common.
std::string difference(std::size_t rank, std::string_view what, std::string_view mine, std::string_view first) {
  const std::size_t shorter = std::min(mine.size(), first.size());
  std::size_t before = 0, after = 0;
  while (before < shorter && mine[before] == first[before]) ++before;
  const std::size_t begin = begin_before(first, before);
  while (after < shorter - begin && mine[mine.size() - 1 - after] == first[first.size() - 1 - after]) ++after;
  return fmt::format("rank {} differs from rank 0 in {} ({} against {})", rank, what, part_between(mine, before, after),
                     part_between(first, before, after));
}

/// What each rank may use of its machine. A collective.
std::vector<CoreClaim> all_claims(Bootstrap& bootstrap) {
  std::vector<CoreClaim> claims;
  for (const std::vector<std::byte>& theirs : bootstrap.all_gather(to_bytes(own_claim()))) {
    claims.push_back(claim_from(theirs));
  }
  return claims;
}

/// Rank and size, without asking anybody.
Place place_in_environment() {
  try {
    return *choose(launchers(), process_variable).place;
  } catch (const Error&) {
    return {};  // variables that contradict each other: whoever needs them will say so
  }
}

}  // namespace

Rank rank_in_environment() { return place_in_environment().rank; }
int ranks_in_environment() { return std::max(1, place_in_environment().size); }

std::string lone_rank_in_environment() {
  try {
    if (choose(launchers(), process_variable).place->size > 1 || numbered(process_variable)) return {};
  } catch (const Error&) {
    return {};  // as above
  }
  return rank_without_size(process_variable);
}

LaunchFindings launch_findings() {
  LaunchFindings findings;
  findings.variables = seen_variables(launchers(), process_variable);
  const std::vector<Candidate> all = candidates(launchers(), process_variable);
  try {
    const Candidate chosen = choose(launchers(), process_variable);
    findings.bootstrap = chosen.bootstrap;
    findings.why = chosen.why;
    findings.rank = chosen.place->rank;
    findings.ranks = chosen.place->size;
    findings.local_rank = chosen.place->local_rank;
    findings.local_ranks = chosen.place->local_size;
  } catch (const Error& error) {
    findings.why = error.what();
  }
  for (const Candidate& one : all) {
    const bool chosen = one.bootstrap == findings.bootstrap;
    const bool passed_over = !chosen && !one.wrong && one.bootstrap == "inproc";
    findings.bootstraps.push_back({one.bootstrap, chosen,
                                   chosen        ? findings.why
                                   : passed_over ? "taken where no launcher started several processes, or on request"
                                                 : one.why});
  }
  for (const BackendInfo& info : known_backends(BackendKind::bootstrap)) {
    const bool asked = std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.bootstrap == info.name; });
    if (asked) continue;
    const std::string form = info.argument.empty() ? info.name : info.name + ":" + info.argument;
    findings.bootstraps.push_back({info.name, false, "taken on request alone: bootstrap " + form});
  }
  return findings;
}

struct World::State {
  std::string bootstrap_name, transport_name;
  int ranks = 1, cores = 1;
  std::unique_ptr<Bootstrap> bootstrap;  // null: all ranks are here
  std::vector<CoreClaim> claims;         // by rank; none if all are here
  std::unique_ptr<Transport> transport;
  std::atomic<bool> failed = false;

  std::mutex mutex;  // guards the two below
  Control* control = nullptr;
  std::optional<Error> launcher_gone;
  std::function<void(const Error&)> tell;
  std::optional<LauncherWatch> watch;  // last: it uses the others

  /// Shells that run under a launcher, perhaps for long after it, may start threads of their own.
  void watch_launcher() {
    auto launcher = find_launcher(launchers(), process_variable);
    if (!launcher || (bootstrap_name == "inproc" && !launcher->is_parent)) return;
    watch.emplace(*std::move(launcher), [this](const Error& error) { lose_launcher(error); });
  }
  void lose_launcher(const Error& error) {
    failed = true;
    {
      const std::scoped_lock lock(mutex);
      launcher_gone = error;
      if (control != nullptr) control->abort(error);
    }
    if (tell) tell(error);
  }
  void take(std::unique_ptr<Bootstrap> met) {
    bootstrap = std::move(met);
    ranks = bootstrap->size();
    const std::scoped_lock lock(mutex);
    control = bootstrap->control();
    if (launcher_gone) control->abort(*launcher_gone);
  }
};

World::World(const LaunchOptions& options) : state_(std::make_unique<State>()) {
  if (options.ranks < 0) refuse(fmt::format("{} ranks (0: as many as were started): give some", options.ranks));
  backends::checked_timeout(options.timeout_s);
  const std::string asked = bootstrap_for(options), name = asked.substr(0, asked.find(':'));
  state_->bootstrap_name = name;
  state_->tell = options.launcher_gone;
  if (name == "inproc") {
    if (!options.transport.empty() && options.transport != "inproc") {
      refuse(
          fmt::format("transport {} does not connect threads of one process (they use inproc): start the ranks with a "
                      "launcher, or take bootstrap file:PATH",
                      options.transport));
    }
    state_->ranks = std::max(1, options.ranks);
    state_->cores = std::max(1, usable_cores() / state_->ranks);
    state_->transport_name = "inproc";
    state_->watch_launcher();
    return;
  }
  if (options.transport == "inproc") {
    refuse(fmt::format("transport inproc does not connect processes (started by {}): leave it out", name));
  }
  state_->watch_launcher();
  const std::string argument = asked.substr(std::min(asked.size(), name.size() + 1));
  state_->take(make_bootstrap(name, {argument, options.ranks, options.timeout_s}));
  try {
    state_->claims = all_claims(*state_->bootstrap);
    state_->cores = fair_cores(state_->claims, index(first()));
    state_->transport = make_transport(options.transport, *state_->bootstrap);
    state_->transport_name = state_->transport->name();
  } catch (...) {
    abort(as_error(std::current_exception()));
    state_->bootstrap->control()->check(first(), Control::Clock::now());  // another rank's failure may be the cause
    throw;
  }
}

World::~World() {
  if (!state_) return;
  state_->watch.reset();  // launchers may end when their ranks are about to
  if (!state_->bootstrap || state_->failed || std::uncaught_exceptions() > 0) return;
  try {
    if (Control* const control = state_->bootstrap->control()) control->leaving();
    state_->bootstrap->barrier();
    state_->transport.reset();  // while all others still answer
    state_->bootstrap->barrier();
  } catch (...) {
    // Another rank failed after this one was done: its own output says why.
  }
}
World::World(World&&) noexcept = default;

int World::size() const { return state_->ranks; }
bool World::in_process() const { return state_->bootstrap == nullptr; }
Rank World::first() const { return in_process() ? 0 : state_->bootstrap->rank(); }
int World::local_size() const { return in_process() ? state_->ranks : state_->bootstrap->local_size(); }
Rank World::local_rank() const { return in_process() ? 0 : state_->bootstrap->local_rank(); }
int World::cores() const { return state_->cores; }
int World::ranks_on_machine() const { return in_process() ? size() : count_on_machine(state_->claims, index(first())); }
int World::ranks_in(const ControlGroup& group) const {
  return in_process() ? size() : std::max(1, count_in_group(state_->claims, index(first()), group));
}
std::string_view World::bootstrap() const { return state_->bootstrap_name; }
std::string_view World::transport() const { return state_->transport_name; }
Machine World::placed(const Machine& machine, int node_size) const {
  Machine here = machine.over(transport());
  if (in_process()) return here;
  // A description of cores is of those that one process may use, which may be bound to some of its node's.
  if (here.cores > 0) here.cores = cores_together(state_->claims, index(first()));
  if (local_size() == size()) return here;
  here.ranks_per_node = node_size > 0 ? node_size : local_size();
  here.nodes = (size() + here.ranks_per_node - 1) / here.ranks_per_node;
  return here;
}

void World::run(const std::function<void(Rank, Transport&, Bootstrap&)>& body) {
  if (in_process()) {
    run_ranks(size(), body);
    return;
  }
  try {
    body(first(), *state_->transport, *state_->bootstrap);
  } catch (...) {
    abort(as_error(std::current_exception()));
    throw;
  }
}

Transport& World::endpoint() {
  DISTATTN_EXPECT(state_->transport != nullptr);
  return *state_->transport;
}

void World::abort(const Error& error) noexcept {
  state_->failed = true;
  if (!in_process()) state_->bootstrap->control()->abort(error);
}

std::vector<std::vector<std::byte>> World::all_gather(std::span<const std::byte> mine) {
  if (in_process()) return {{mine.begin(), mine.end()}};
  return state_->bootstrap->all_gather(mine);
}

std::string World::broadcast(std::string_view mine) {
  const auto all = all_gather(first() == 0 ? std::as_bytes(std::span(mine)) : std::span<const std::byte>());
  return std::string(text_of(all[0]));
}

void World::agree(std::string_view what, std::string_view mine) {
  const auto all = all_gather(std::as_bytes(std::span(mine)));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const Error error(ErrorKind::peer, difference(rank, what, text_of(all[rank]), text_of(all[0])) +
                                           ": give all ranks the same input and options");
    abort(error);
    throw error;
  }
}

}  // namespace distattn
