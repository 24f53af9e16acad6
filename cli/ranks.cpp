#include "ranks.hpp"

#include "console.hpp"
#include "distattn/error.hpp"
#include "interruption.hpp"
#include "output.hpp"

namespace distattn::cli {

Outcome with_ranks(const LaunchOptions& options, const std::vector<std::int64_t>& ranks,
                   const std::function<Outcome(World&)>& body) {
  const int asked = ranks.empty() ? 0 : static_cast<int>(ranks.front());
  World world({options.bootstrap, options.transport, asked, options.timeout_s});
  print_here(world.first() == 0);
  if (world.first() != 0) set_verbosity(Verbosity::quiet);
  const AtInterruption end_all([&world](const Error& error) { world.abort(error); });
  try {
    return body(world);
  } catch (...) {
    world.abort(as_error(std::current_exception()));
    throw;
  }
}

ScheduleOptions on_nodes_of(const World& world, ScheduleOptions options) {
  const bool several = !world.in_process() && world.local_size() < world.size();
  if (several && !options.node_size) options.node_size = world.local_size();
  return options;
}

}  // namespace distattn::cli
