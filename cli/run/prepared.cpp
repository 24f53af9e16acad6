#include "cli/run/prepared.hpp"

#include <fmt/format.h>

#include <vector>

#include "cli/run/agreement.hpp"
#include "cli/run/program_file.hpp"
#include "cli/run/ranks.hpp"
#include "core/src/words.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {

AttentionOptions attention_options(const std::string& name, const Problem& problem, int ranks, int threads,
                                   const ScheduleOptions& options, Passes passes, const Machine& machine) {
  routes_of(options, machine, ranks);  // refuses wrong ones in this program's words
  AttentionOptions asked = asked_options(options, passes);
  asked.schedule = name;
  asked.threads = threads;
  asked.machine = machine;
  AttentionOptions resolved = decided(problem, ranks, std::move(asked));
  resolved.memory_bytes = AttentionOptions().memory_bytes;  // why_too_large() says it in this program's words
  return resolved;
}

AttentionOptions decided_options(World& world, const std::string& name, const Problem& problem, int threads,
                                 const ScheduleOptions& options, Passes passes) {
  const auto machine = [&] { return machine_for(world, machine_of(options), options); };
  return decided_by_first(
      world, [&] { return attention_options(name, problem, world.size(), threads, options, passes, machine()); });
}

std::string why_too_large(const AttentionPlan& plan, const ScheduleOptions& options) {
  if (!options.memory_bytes) return "";
  std::vector<const Counts*> passes;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (plan.has(pass)) passes.push_back(&plan.counts(pass));
  }
  const std::int64_t needed = memory_side_by_side(passes);
  if (needed <= *options.memory_bytes) return "";
  return fmt::format("{} needs {} a rank (--memory allows {})", plan.name(),
                     bytes_in_words(static_cast<double>(needed)),
                     bytes_in_words(static_cast<double>(*options.memory_bytes)));
}

Prepared prepare(World& world, const std::string& name, const Problem& problem, int threads,
                 const ScheduleOptions& options, Passes passes) {
  const AttentionOptions resolved = decided_options(world, name, problem, threads, options, passes);
  const auto plan = std::make_shared<const AttentionPlan>(problem, world.size(), resolved);
  const std::string why = why_too_large(*plan, options);
  if (!why.empty()) refuse(why + ": choose another schedule or more ranks");
  return {plan->name(), plan};
}

Prepared prepare_program(const std::string& path) {
  const auto plan = std::make_shared<const AttentionPlan>(read_programs(path));
  return {plan->name(), plan};
}

}  // namespace distattn::cli
