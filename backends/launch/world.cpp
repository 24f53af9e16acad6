#include "distattn/launch.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include <fmt/core.h>

#include "backends/launch/core_share.hpp"
#include "backends/launch/launcher.hpp"
#include "backends/registration.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/inproc.hpp"
#include "distattn/registry.hpp"

namespace distattn {
namespace {

using namespace backends::launch;

constexpr std::string_view file_prefix = "file:";

/// One of several processes, and nothing says how it may find the others: alone it would do again what each of them
/// does.
void refuse_to_be_one_of_several() {
  for (const auto& [rank, size] : {std::pair("RANK", "WORLD_SIZE"), {"PMI_RANK", "PMI_SIZE"}}) {
    if (!process_variable(rank) || number_in(process_variable, size).value_or(1) <= 1) continue;
    throw Error(ErrorKind::environment,
                fmt::format("{}={} of {}={} cannot find the others (MASTER_ADDR and MASTER_PORT are not both set) set "
                            "them, or give a bootstrap: file:PATH, or inproc for each alone",
                            rank, *process_variable(rank), size, *process_variable(size)));
  }
}

/// What the environment says about who started this process: of several launchers, the last.
std::string launcher_here() {
  // Processes that mpirun or srun started run torchrun, not the other way round.
  if (process_variable("TORCHELASTIC_RUN_ID") && torchrun_surroundings(process_variable)) return "torchrun";
  if (process_variable("PMIX_NAMESPACE") && process_variable("PMIX_RANK")) return "pmix";
  if (torchrun_surroundings(process_variable)) return "torchrun";
  if (slurm_surroundings(process_variable)) return "slurm";
  refuse_to_be_one_of_several();
  return "inproc";
}

std::unique_ptr<Bootstrap> meet(const std::string& name, const LaunchOptions& options) {
  if (name == "file") return meet(std::string(file_prefix), options);
  if (!name.starts_with(file_prefix)) return make_bootstrap(name, {"", options.ranks, options.timeout_s});
  if (options.ranks < 1)
    refuse("bootstrap file: needs a number of ranks (a file does not know how many will come) give it");
  if (name == file_prefix) refuse("bootstrap file: has no path (ranks meet at a file that all can write) name one");
  return make_bootstrap("file", {name.substr(file_prefix.size()), options.ranks, options.timeout_s});
}

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Threads for the rank of this process, as all ranks bind and limit theirs. A collective.
int agreed_cores(Bootstrap& bootstrap) {
  std::vector<CoreClaim> claims;
  for (const std::vector<std::byte>& theirs : bootstrap.allgather(to_bytes(own_claim()))) {
    claims.push_back(claim_from(theirs));
  }
  return fair_cores(claims, static_cast<std::size_t>(bootstrap.rank()));
}

/// Rank and size, without asking anybody. PMIx has no variable for the size, but those who start processes with it do.
Place place_in_environment() {
  try {
    const std::string launcher = launcher_here();
    if (launcher == "torchrun") return torchrun_surroundings(process_variable)->place;
    if (launcher == "slurm") return slurm_surroundings(process_variable)->place;
    Place place;
    if (launcher == "inproc") return place;
    place.rank = number_in(process_variable, "PMIX_RANK").value_or(0);
    for (const char* name : {"SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"}) {
      place.size = number_in(process_variable, name).value_or(place.size);
    }
    return place;
  } catch (const Error&) {
    return {};  // variables that contradict each other: whoever needs them will say so
  }
}

}  // namespace

Rank rank_in_environment() { return place_in_environment().rank; }
int ranks_in_environment() { return std::max(1, place_in_environment().size); }

struct World::State {
  std::string bootstrap_name, transport_name;
  int ranks = 1, cores = 1;
  std::unique_ptr<Bootstrap> bootstrap;  // null: all ranks are here
  std::unique_ptr<Transport> transport;
  std::atomic<bool> failed = false;
};

World::World(const LaunchOptions& options) : state_(std::make_unique<State>()) {
  if (options.ranks < 0) refuse(fmt::format("{} ranks (0: as many as were started) give some", options.ranks));
  backends::checked_timeout(options.timeout_s);
  const std::string name = options.bootstrap.empty() ? launcher_here() : options.bootstrap;
  state_->bootstrap_name = name.substr(0, name.find(':'));
  if (name == "inproc") {
    if (!options.transport.empty() && options.transport != "inproc") {
      refuse(
          fmt::format("transport {} does not connect threads of one process (they use inproc) start the ranks with a "
                      "launcher, or take bootstrap file:PATH",
                      options.transport));
    }
    state_->ranks = std::max(1, options.ranks);
    state_->cores = std::max(1, usable_cores() / state_->ranks);
    state_->transport_name = "inproc";
    return;
  }
  if (options.transport == "inproc") {
    refuse(fmt::format("transport inproc does not connect processes (started by {}) leave it out", name));
  }
  state_->bootstrap = meet(name, options);
  state_->ranks = state_->bootstrap->size();
  try {
    state_->cores = agreed_cores(*state_->bootstrap);
    state_->transport = make_transport(options.transport, *state_->bootstrap);
    state_->transport_name = state_->transport->name();
  } catch (...) {
    abort(as_error(std::current_exception()));
    state_->bootstrap->control()->check(first(), Control::Clock::now());  // another rank's failure may be the cause
    throw;
  }
}

World::~World() {
  if (!state_ || !state_->bootstrap || state_->failed || std::uncaught_exceptions() > 0) return;
  try {
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
std::string_view World::bootstrap() const { return state_->bootstrap_name; }
std::string_view World::transport() const { return state_->transport_name; }

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

std::vector<std::vector<std::byte>> World::gather(std::span<const std::byte> mine) {
  if (in_process()) return {{mine.begin(), mine.end()}};
  return state_->bootstrap->allgather(mine);
}

std::string World::of_first(std::string_view mine) {
  const auto all = gather(first() == 0 ? std::as_bytes(std::span(mine)) : std::span<const std::byte>());
  return std::string(text_of(all[0]));
}

void World::agree(std::string_view what, std::string_view mine) {
  const auto all = gather(std::as_bytes(std::span(mine)));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const Error error(ErrorKind::peer,
                      fmt::format("rank {} differs from rank 0 in {} ({} against {}) give all ranks the same input and "
                                  "options",
                                  rank, what, text_of(all[rank]), text_of(all[0])));
    abort(error);
    throw error;
  }
}

double World::clock_ahead_s() {
  struct Reading {
    std::array<char, 64> machine{};
    double now_s = 0;
  } mine;
  boot_identity().copy(mine.machine.data(), mine.machine.size() - 1);
  gather({});  // so that all read their clocks at about the same time
  mine.now_s = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  const auto all = gather(std::as_bytes(std::span(&mine, 1)));
  Reading first;
  DISTATTN_EXPECT(all[0].size() == sizeof first);
  std::memcpy(&first, all[0].data(), sizeof first);
  return mine.machine == first.machine ? 0 : mine.now_s - first.now_s;
}

}  // namespace distattn
