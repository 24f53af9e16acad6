#include "cli/run/ranks.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "cli/run/agreement.hpp"
#include "cli/run/memory.hpp"
#include "cli/terminal/console.hpp"
#include "cli/terminal/interruption.hpp"
#include "cli/terminal/output.hpp"
#include "distattn/error.hpp"
#include "distattn/files.hpp"
#include "distattn/host_resources.hpp"

namespace distattn::cli {
namespace {

/// The library's advice, which knows no options, as this program's.
Error with_options_named(const Error& error) {
  std::string text = error.what();
  for (const std::string_view advice : {" bootstrap inproc", " bootstrap file:"}) {
    const std::size_t at = text.find(advice);
    if (at != text.npos) text.insert(at + 1, "--");
  }
  return {error.kind(), text};
}

World find_ranks(const ComputeOptions& options, int asked) {
  try {
    return World({options.bootstrap, options.transport, asked, options.timeout_s, end_without_launcher});
  } catch (const Error& error) {
    throw with_options_named(error);
  }
}

}  // namespace

Outcome with_ranks(const ComputeOptions& options, const std::vector<std::int64_t>& ranks,
                   const std::function<Outcome(World&)>& body) {
  wait_for_pipes(options.timeout_s);
  const int asked = ranks.empty() ? 0 : static_cast<int>(ranks.front());
  World world = find_ranks(options, asked);
  if (const std::string lone = lone_rank_in_environment(); options.bootstrap.empty() && !lone.empty()) {
    note(fmt::format("this process runs alone ({}): set both if it is one of several, or give --bootstrap inproc",
                     lone));
  }
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

std::vector<int> rank_counts(const World& launched, const std::vector<std::int64_t>& asked) {
  if (launched.size() == 1 || launched.in_process())
    return asked.empty() ? std::vector{1} : std::vector<int>(asked.begin(), asked.end());
  if (asked.size() > 1) {
    refuse(fmt::format("--ranks is a list ({} started {} ranks): leave it out", launched.bootstrap(), launched.size()));
  }
  return {launched.size()};
}

Outcome with_rank_counts(const ComputeOptions& options, const std::vector<std::int64_t>& ranks,
                         const std::function<Outcome(World&)>& body) {
  return with_ranks(options, ranks.size() == 1 ? ranks : std::vector<std::int64_t>(), body);
}

Machine machine_of(World& world, const ScheduleOptions& options) {
  const std::string text = said_by_first(world, [&] { return to_json(machine_of(options)); });
  return machine_for(world, machine_from_json(text, "the machine of rank 0"), options);
}

Machine machine_for(const World& world, const Machine& machine, const ScheduleOptions& options) {
  if (options.machine) return machine.over(world.transport());
  Machine here = world.placed(machine, static_cast<int>(options.node_size.value_or(0)));
  // Ranks in processes may have limits of their own, which those of a node do not share.
  const std::int64_t bytes = world.in_process() ? HostResources::unlimited : memory_of_rank(world);
  if (here.cores > 0 && bytes < HostResources::unlimited) here.memory_bytes = bytes * here.on_a_node(world.size());
  return here;
}

ScheduleOptions on_nodes_of(const World& world, ScheduleOptions options) {
  const bool several = !world.in_process() && world.local_size() < world.size();
  if (several && !options.node_size) options.node_size = world.local_size();
  return options;
}

}  // namespace distattn::cli
