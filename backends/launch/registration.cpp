#include "backends/launch/by_variables.hpp"

namespace distattn::backends {

Registration launch::by_variables(const char* name, std::optional<LauncherEnvironment> (*environment)(const Variables&),
                                  const char* variables) {
  bool started = false;
  std::string why = std::string(variables) + " are not set";
  try {
    started = environment(process_variable).has_value();
  } catch (const Error& error) {
    why = error.what();
  }
  Registration registration{{name, BackendKind::bootstrap, true, started, started ? "started this process" : why, ""},
                            {}};
  registration.make_bootstrap = [environment](const BootstrapOptions& options) {
    const LauncherEnvironment here = environment(process_variable).value();
    check_size(options.ranks, here.launcher, here.place.size);
    return meet_at_port(here, options.timeout_s);
  };
  return registration;
}

Registration register_file() {
  Registration registration{{"file", BackendKind::bootstrap, true, true, "ranks meet at a file that all can write", ""},
                            {}};
  registration.info.argument = "PATH";
  registration.make_bootstrap = [](const BootstrapOptions& options) {
    if (options.ranks < 1)
      refuse("bootstrap file: needs a number of ranks (a file does not know how many will come): give it");
    if (options.argument.empty())
      refuse("bootstrap file: has no path (ranks meet at a file that all can write): name one");
    return launch::meet_at_file(options.argument, options.ranks, launch::process_variable, options.timeout_s);
  };
  return registration;
}

Registration register_threads() {
  return {{"inproc", BackendKind::bootstrap, true, true, "ranks are threads of one process", ""}, {}};
}

}  // namespace distattn::backends
