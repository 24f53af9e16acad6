#pragma once
/// Where the ranks of a run live: threads of this process, or processes that a launcher started.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "distattn/bootstrap.hpp"
#include "distattn/engine.hpp"
#include "distattn/error.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/machine.hpp"

#pragma GCC visibility push(default)
namespace distattn {

struct LaunchOptions {
  /// "inproc", "pmix", "torchrun", "slurm" or "file:PATH". Empty: determined from the environment; a launcher that
  /// started a single process counts as none, unless `transport` is one between processes.
  std::string bootstrap{};
  std::string transport{};  ///< empty: the best usable that connects these ranks
  int ranks = 0;            ///< 0: as many as the launcher started; 1 without one
  double timeout_s = 60;    ///< longest time without progress of an awaited rank: above 0, also infinity
  /// Called on a thread of the World when the process that started the ranks (mpirun, torchrun or a step of srun) has
  /// ended before them. By then the run of all ranks has been ended, as by abort(); ranks that would not notice should
  /// be ended here.
  std::function<void(const Error&)> launcher_gone{};
};

/// The rank of this process by a launcher's variables alone; 0 if they are incomplete.
Rank rank_in_environment();
/// The number of ranks by the same variables; 1 if they do not say.
int ranks_in_environment();

/// "RANK=1 is set, but WORLD_SIZE is not", where a process that may be one of several would run alone because nothing
/// says how many they are; empty otherwise.
std::string lone_rank_in_environment();

/// How this process was started, as far as the environment shows.
struct LaunchFindings {
  struct Way {
    std::string name;  ///< bootstrap
    bool chosen = false;
    std::string why;  ///< why it was chosen, or what it lacks
  };
  std::string bootstrap;  ///< what World uses by default; empty: World throws, and `why` has its message
  std::string why;
  Rank rank = 0, local_rank = 0;
  int ranks = 1, local_ranks = 1;  ///< 0: not known before the ranks have met
  std::vector<std::pair<std::string, std::string>>
      variables;                ///< those that matter and are set; of secrets, the length
  std::vector<Way> bootstraps;  ///< in the order in which they are tried
};
LaunchFindings launch_findings();

/// The ranks of one run, as this process sees them. Several Worlds may exist at a time, and new ones may follow those
/// that ended or failed, if all ranks create them in the same order.
class World {
 public:
  /// Finds the other ranks. Throws Error(usage) if the launcher started a number of ranks other than `ranks`,
  /// Error(environment) if the bootstrap or the transport is not usable here, Error(timeout) or Error(peer) if ranks do
  /// not come.
  explicit World(const LaunchOptions& options);
  /// Ranks that are threads of this process, whatever the environment says.
  static World of_threads(int ranks) { return World({"inproc", "inproc", ranks}); }
  /// After a run that did not fail, waits until all ranks have come here.
  ~World();
  World(World&&) noexcept;

  int size() const;
  /// Whether all ranks are threads of this process.
  bool in_process() const;
  /// The lowest rank of this process: its only rank unless in_process().
  Rank first() const;
  int local_size() const;  ///< ranks on this node
  /// Index of first() among the ranks on its node. Use it as DeviceOptions::local_rank, so that a rank computes on the
  /// GPU that its transport sends from.
  Rank local_rank() const;
  /// Threads for each rank of this process: its share of the processors that it may use (HostResources). A processor or
  /// a quota that several ranks of a machine may use is divided among those ranks only.
  int cores() const;
  /// The number of ranks on this machine, including those in containers with networks of their own, which local_size()
  /// does not count; and how many of them one of this process's control groups holds.
  int ranks_on_machine() const;
  int ranks_in(const ControlGroup& group) const;
  std::string_view bootstrap() const;
  std::string_view transport() const;
  /// The machine as these ranks use it: with the links and speeds of their transport, the cores that the processes of
  /// this node have together, and, if they are on several nodes, with that many nodes of `node_size` ranks each (0: as
  /// many as this process's node has).
  Machine placed(const Machine& machine, int node_size = 0) const;

  /// Calls `body` for every rank of this process, each on its own thread if there are several, and returns when all
  /// calls have returned. All ranks must call it. The failure of a rank ends the run of all ranks; throws the first
  /// failure, or an error that names the rank that failed.
  void run(const std::function<void(Rank, Transport&, Bootstrap&)>& body);

  /// This process's transport, for callers that cannot wait inside run(). Must not be called if in_process().
  Transport& endpoint();

  /// Ends the run of all ranks with `error`. Any thread.
  void abort(const Error& error) noexcept;

  /// All-gathers bytes between processes: one entry for each process, in the order of ranks; a single one if
  /// in_process(). A collective, to be called outside run(), as are the two functions below.
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine);
  /// Broadcasts the text of the process that has rank 0.
  std::string broadcast(std::string_view mine);
  /// Throws the same Error(peer) on every rank, which names a rank that differs, unless `mine` is equal on all ranks.
  /// `what` describes it in the message.
  void agree(std::string_view what, std::string_view mine);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distattn
#pragma GCC visibility pop
