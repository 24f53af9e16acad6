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
  /// "inproc", "pmix", "torchrun", "slurm" or "file:PATH". Empty: as the environment says; a launcher that started one
  /// process alone counts as none, unless `transport` is one between processes.
  std::string bootstrap{};
  std::string transport{};  ///< empty: the best usable that connects these ranks
  int ranks = 0;            ///< 0: as many as the launcher started; 1 without one
  double timeout_s = 60;    ///< longest time without progress of an awaited rank: above 0, also infinity
  /// Called, on a thread of the World, when the process that started the ranks (mpirun, torchrun or a step of srun) has
  /// ended before them. The run of all ranks has ended then, as by abort(); whoever does not look ends here.
  std::function<void(const Error&)> launcher_gone{};
};

/// Which rank a launcher's variables say that this process is, without asking anybody; 0 where they are not all there.
Rank rank_in_environment();
/// How many ranks they say that there are; 1 where they do not say.
int ranks_in_environment();

/// How the environment says that this process was started, for those who wonder.
struct LaunchFindings {
  struct Way {
    std::string name;  ///< of a bootstrap
    bool chosen = false;
    std::string why;  ///< or what it lacks
  };
  std::string bootstrap;  ///< that World takes when nobody names one; empty: it throws, and `why` says what
  std::string why;
  Rank rank = 0, local_rank = 0;
  int ranks = 1, local_ranks = 1;                              ///< 0: known when the ranks have met
  std::vector<std::pair<std::string, std::string>> variables;  ///< that matter and are set; secrets by their length
  std::vector<Way> bootstraps;                                 ///< in the order in which they are looked for
};
LaunchFindings launch_findings();

/// The ranks of one run, as this process sees them. There may be several at a time, and new ones after others have
/// ended or failed, made in one order on all ranks.
class World {
 public:
  /// Finds the other ranks. Throws Error(usage) when the launcher started another number of ranks than `ranks`,
  /// Error(environment) when the bootstrap or the transport is not usable here, Error(timeout) or Error(peer) when
  /// ranks do not come.
  explicit World(const LaunchOptions& options);
  /// Ranks that are threads of this process, whatever the environment says.
  static World of_threads(int ranks) { return World({"inproc", "inproc", ranks}); }
  /// After a run that did not fail, waits until all ranks are here.
  ~World();
  World(World&&) noexcept;

  int size() const;
  /// All ranks are threads of this process.
  bool in_process() const;
  /// The lowest rank of this process: the only one unless all are here.
  Rank first() const;
  int local_size() const;  ///< ranks on this node
  /// first() among the ranks on its node: what DeviceOptions::local_rank is to be, so that a rank computes on the GPU
  /// that its transport sends from.
  Rank local_rank() const;
  /// Threads for each rank of this process: its share of the processors that it may use, as HostResources counts them.
  /// A processor, or a control group's quota, that several ranks of a machine may use is divided among these alone.
  int cores() const;
  /// Ranks on this machine, also those in other containers, which local_size() does not count where they have networks
  /// of their own; and those of them that one of this process's control groups holds.
  int ranks_on_machine() const;
  int ranks_in(const ControlGroup& group) const;
  std::string_view bootstrap() const;
  std::string_view transport() const;
  /// A machine as these ranks use it: with the links of their transport, and where they are on several nodes, with
  /// these, of `node_size` ranks each; 0: of as many as this process's node has.
  Machine placed(const Machine& machine, int node_size = 0) const;

  /// Calls `body` for every rank that lives here, each on a thread of its own where there are several, and returns
  /// when they have. All ranks must call it. A failure of any rank ends all; what is thrown is the failure that came
  /// first, or says whose it was.
  void run(const std::function<void(Rank, Transport&, Bootstrap&)>& body);

  /// This process's end of what connects the ranks, for those who cannot wait inside run(). Must not be called where
  /// all ranks are threads of this process.
  Transport& endpoint();

  /// Ends the run of all ranks with `error`. Any thread.
  void abort(const Error& error) noexcept;

  /// Everybody's bytes, by process, in the order of ranks: one entry where all ranks are here. A collective of
  /// processes, outside of run(), as are the two below.
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine);
  /// What the process of rank 0 says.
  std::string of_first(std::string_view mine);
  /// Throws the same Error(peer) on every rank, naming one that differs, unless all ranks say the same about `what`.
  void agree(std::string_view what, std::string_view mine);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distattn
#pragma GCC visibility pop
