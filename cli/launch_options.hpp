#pragma once
/// Options that say what computes and what carries.

#include <string>

namespace CLI {
class App;
}

namespace distattn::cli {

struct LaunchOptions {
  std::string backend;  ///< empty: the best usable
  std::string transport = "inproc", bootstrap = "inproc";
  int threads = 0;  ///< of a rank; 0: cores / ranks
  double timeout_s = 60;
};

/// --backend, --transport, --bootstrap, --threads, --timeout. What this build lacks is refused with the reason.
void add_launch_options(CLI::App& app, LaunchOptions& options);

}  // namespace distattn::cli
