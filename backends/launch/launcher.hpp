#pragma once
/// Ways to be started as a rank among others. Each says whether this process was, and finds the others.

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/launch/rendezvous.hpp"
#include "distattn/bootstrap.hpp"

namespace distattn::backends::launch {

/// Reads environment variables; tests bring their own.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_variable(const std::string& name);
/// Whether a variable is set in this process, but to nothing: for process_variable() it is not.
bool is_empty(const std::string& name);
/// A variable that is a number ≥ 0; nothing if it is not set. Throws Error(environment) for anything else.
std::optional<int> number_in(const Variables& variables, const std::string& name);
/// DISTATTN_PORT, if it is set. Throws Error(environment) unless it is a port, or 0.
std::optional<int> own_port(const Variables& variables);

/// What a launcher's variables say about this run.
struct LauncherEnvironment {
  std::string launcher;
  Place place;                       ///< local_size 0: known when the ranks have met
  bool loopback = false;             ///< the host is called as only this machine calls it, and no secret lets others in
  std::string host;                  ///< of rank 0
  std::vector<int> ports;            ///< where rank 0 listens: the first of them that is free
  std::optional<std::string> token;  ///< nothing: a file of this user, which all ranks on one node can read
  std::string start;                 ///< tells this run's file from those of others at the same port; empty: unknown
  bool one_node() const { return place.local_size == 0 ? loopback : place.local_size == place.size; }
};

/// Whether a launcher started this process.
struct Started {
  std::string why;               ///< it did, or what it lacks
  std::optional<Place> place{};  ///< nothing: it did not; a size of 0: known when the ranks have met
};
inline Started by_nobody(std::string why) { return {std::move(why), {}}; }

/// Where several launchers are around a process, one within another, the nearest to it counts.
enum class Nearness : std::uint8_t {
  nobody,
  address,   ///< an address, which a script may have set, and numbers of anybody's
  step,      ///< a step of a resource manager
  own_rank,  ///< an address, and a rank of this process's own
  server,    ///< a server that started this process itself
  agent      ///< a program that starts ranks anew when they fail, itself a rank of another launcher perhaps
};

/// What a bootstrap says of those who start ranks for it. Known whether or not it is built: ranks that it could join
/// must not run each for itself.
struct LauncherVariables {
  const char* bootstrap;
  std::vector<const char*> names;  ///< that it looks at, beside those in which ranks are numbered (rank_variables.hpp)
  std::vector<const char*> marks;  ///< all of them are of one rank alone, as its launcher set them
  Nearness (*nearness)(const Variables& variables);
  /// Throws Error(environment) where the variables contradict each other.
  Started (*started)(const Variables& variables);
};
using Launchers = std::vector<const LauncherVariables*>;

/// "MASTER_ADDR and MASTER_PORT are not set": those of `names` that are not.
std::string lacking(const Variables& variables, std::initializer_list<const char*> names);

/// Where ranks may meet: at DISTATTN_PORT, otherwise at `usual`, which `name` says, or one of the few behind it.
std::vector<int> ports_of(const Variables& variables, const std::string& name, int usual);
/// For a run of that name, where its launcher names no port.
int port_for(const std::string& run);

/// Throws Error(usage) unless `asked` ranks, 0 for any number, are those that were started. To be called before ranks
/// meet, so that all say the same.
void check_size(int asked, const std::string& launcher, int started);

/// Over a port that all ranks know.
std::unique_ptr<Bootstrap> meet_at_port(const LauncherEnvironment& environment, double timeout_s);
/// Over a file that all ranks can write: the first that comes is rank 0, unless DISTATTN_RANK says who is.
std::unique_ptr<Bootstrap> meet_at_file(const std::string& path, int size, const Variables& variables,
                                        double timeout_s);

/// Names the machine, and the network namespace in it: ranks of one node reach each other by loopback.
std::string node_identity();
/// The same where process numbers mean the same processes.
std::string pid_namespace();

}  // namespace distattn::backends::launch
