#include "backends/registration.hpp"

#include "backends/launch/launcher.hpp"

namespace distattn::backends {
namespace {

using Surroundings = std::optional<launch::Surroundings> (*)(const launch::Variables&);

/// A launcher that says everything in variables; usable where it started this process.
Registration variables_of(const char* name, Surroundings surroundings, const char* variables) {
  bool started = false;
  std::string why = std::string(variables) + " are not set";
  try {
    started = surroundings(launch::process_variable).has_value();
  } catch (const Error& error) {
    why = error.what();
  }
  Registration registration{{name, BackendKind::bootstrap, true, started, started ? "started this process" : why, ""},
                            {}};
  registration.make_bootstrap = [surroundings](const BootstrapOptions& options) {
    const launch::Surroundings here = surroundings(launch::process_variable).value();
    launch::check_size(options.ranks, here.launcher, here.place.size);
    return launch::meet_at_port(here, options.timeout_s);
  };
  return registration;
}

}  // namespace

Registration register_torchrun() {
  return variables_of("torchrun", launch::torchrun_surroundings, "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
}
Registration register_slurm() {
  return variables_of("slurm", launch::slurm_surroundings, "SLURM_PROCID, SLURM_NTASKS and SLURM_STEP_ID");
}

Registration register_file() {
  Registration registration{{"file", BackendKind::bootstrap, true, true, "ranks meet at a file that all can write", ""},
                            {}};
  registration.info.argument = "PATH";
  registration.make_bootstrap = [](const BootstrapOptions& options) {
    if (options.ranks < 1)
      refuse("bootstrap file: needs a number of ranks (a file does not know how many will come) give it");
    if (options.argument.empty())
      refuse("bootstrap file: has no path (ranks meet at a file that all can write) name one");
    return launch::meet_at_file(options.argument, options.ranks, launch::process_variable, options.timeout_s);
  };
  return registration;
}

Registration register_threads() {
  return {{"inproc", BackendKind::bootstrap, true, true, "ranks are threads of one process", ""}, {}};
}

}  // namespace distattn::backends
