#pragma once
/// Ways to be started as a rank among others. Each says whether this process was, and finds the others.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/launch/rendezvous.hpp"
#include "distattn/bootstrap.hpp"

namespace distattn::backends::launch {

/// Reads environment variables; tests bring their own.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_variable(const std::string& name);
/// A variable that is a number ≥ 0; nothing if it is not set. Throws Error(environment) for anything else.
std::optional<int> number_in(const Variables& variables, const std::string& name);
/// DISTATTN_PORT, if it is set. Throws Error(environment) unless it is a port, or 0.
std::optional<int> own_port(const Variables& variables);

/// What a launcher's variables say.
struct Surroundings {
  std::string launcher;
  Place place;                       ///< local_size 0: known when the ranks have met
  bool loopback = false;             ///< the host is called as only this machine calls it
  std::string host;                  ///< of rank 0
  std::vector<int> ports;            ///< where rank 0 listens: the first of them that is free
  std::optional<std::string> token;  ///< nothing: a file of this user, which all ranks on one node can read
  std::string start;                 ///< tells this run's file from those of others at the same port; empty: unknown
  bool one_node() const { return place.local_size == 0 ? loopback : place.local_size == place.size; }
};

/// Nothing where the variables of that launcher are not there; those of torchrun are MASTER_ADDR, MASTER_PORT and a
/// rank and size of anybody's. All throw Error(environment) naming the variable that
/// is wrong, or missing.
std::optional<Surroundings> torchrun_surroundings(const Variables& variables);
std::optional<Surroundings> slurm_surroundings(const Variables& variables);
/// Those of Open MPI's mpirun, which serves each rank of PMIx once, and so one run of a script.
std::optional<Surroundings> mpirun_surroundings(const Variables& variables);

/// Throws Error(usage) unless `asked` ranks, 0 for any number, are those that were started. To be called before ranks
/// meet, so that all say the same.
void check_size(int asked, const std::string& launcher, int started);

/// Over a port that all ranks know.
std::unique_ptr<Bootstrap> meet_at_port(const Surroundings& surroundings, double timeout_s);
/// Over a file that all ranks can write: the first that comes is rank 0, unless DISTATTN_RANK says who is.
std::unique_ptr<Bootstrap> meet_at_file(const std::string& path, int size, const Variables& variables,
                                        double timeout_s);

/// Names the machine, as long as it runs: processes with the same share its clock.
std::string boot_identity();
/// Names the machine, and the network namespace in it: ranks of one node reach each other by loopback.
std::string node_identity();
/// The same where process numbers mean the same processes.
std::string pid_namespace();

}  // namespace distattn::backends::launch
