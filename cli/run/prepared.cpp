#include "cli/run/prepared.hpp"

#include <utility>

#include "cli/run/agreement.hpp"
#include "cli/run/ranks.hpp"

namespace distattn::cli {

std::variant<std::vector<SharedPlan>, WhyNot> try_to_prepare(World& world, const std::string& name,
                                                             const std::vector<LayerKind>& kinds, int threads,
                                                             const ScheduleOptions& options, Passes passes) {
  Decision decision = with_options_named(decided_by_first(world, [&] {
    ScheduleRequest request = request_of(options, name, passes, machine_for(world, machine_of(options), options));
    request.threads = threads;
    return decided(kinds, world.size(), request);
  }));
  if (auto* const why = std::get_if<WhyNot>(&decision)) return std::move(*why);
  auto planned = with_options_named(plan(kinds, world.size(), std::get<std::vector<ScheduleRequest>>(decision)));
  if (auto* const why = std::get_if<WhyNot>(&planned)) {
    // Other processes may have the memory, and go on: this ends the run of all.
    if (why->kind == WhyNot::Kind::too_many_messages && !world.in_process()) refuse(why->message);
    return std::move(*why);
  }
  std::vector<SharedPlan> plans;
  for (AttentionPlan& made : std::get<std::vector<AttentionPlan>>(planned))
    plans.push_back(std::make_shared<const AttentionPlan>(std::move(made)));
  return plans;
}

SharedPlan prepare(World& world, const std::string& name, const Problem& problem, int threads,
                   const ScheduleOptions& options, Passes passes) {
  return or_refuse(try_to_prepare(world, name, {{problem}}, threads, options, passes)).front();
}

}  // namespace distattn::cli
