#pragma once
/// Options that choose what computes and what exchanges messages.

#include <string>

#include "cli/options/option_help.hpp"
#include "cli/options/schedule_options.hpp"
#include "distattn/launch.hpp"
#include "distattn/registry.hpp"

namespace distattn::cli {

class App;

struct ComputeOptions {
  std::string backend;               ///< empty: the best usable
  std::string transport, bootstrap;  ///< empty: what fits the environment
  double timeout_s = 60;
  DeviceOptions device;  ///< as asked for; 0 threads: cores / ranks

  /// What a device is asked for, with that many threads: whoever asks whether it computes a problem, measures it or
  /// runs on it does so with these.
  DeviceOptions device_options(int threads) const {
    DeviceOptions with_threads = device;
    with_threads.threads = threads;
    return with_threads;
  }
};

/// The backend as it was named, for messages; empty if it was not.
std::string given_text(const ComputeOptions& options);

/// The names that the registry has of a kind, built or not; `between` separates several.
Values known_names(BackendKind kind, const std::string& between = "");

/// --transport, --bootstrap, --timeout. What this build lacks is refused with the reason.
void add_meeting_options(App& app, ComputeOptions& options);
void add_threads_option(App& app, ComputeOptions& options);
/// All of those, --backend, --provider, --deterministic and --graphs.
void add_launch_options(App& app, ComputeOptions& options);

/// Threads of each of `ranks` ranks that share this process's cores, unless `asked` says otherwise.
int choose_threads(int asked, int ranks);
/// Of this process's ranks in a world.
int choose_threads(int asked, const World& world);

}  // namespace distattn::cli
