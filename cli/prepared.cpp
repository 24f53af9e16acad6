#include "prepared.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

ProvedSchedule lower_and_prove(const Recipe& recipe, const Problem& problem, int ranks, Pass pass,
                               const ScheduleOptions& options) {
  const Routes routes = routes_of(options);
  const auto tiles = std::make_shared<const Tiles>(shard(problem, ranks, recipe.layout, recipe.groups));
  const Lowering lowering(recipe.name, tiles, recipe.table(tiles, routes.node_size), pass,
                          options.mode.value_or(recipe.mode), routes);
  return prove(lower(lowering));
}

void check_memory(const ProvedSchedule& proved, const ScheduleOptions& options) {
  const std::int64_t needed = largest(proved.counts.memory_bytes);
  if (!options.memory_bytes || needed <= *options.memory_bytes) return;
  refuse(fmt::format("{} needs {} bytes a rank (--memory allows {}) choose another schedule or more ranks",
                     proved.schedule.outline.name, needed, *options.memory_bytes));
}

}  // namespace

Prepared prepare(const std::string& name, const Problem& problem, int ranks, const ScheduleOptions& options,
                 Passes passes) {
  const std::string chosen =
      name != "auto" ? name
                     : choose_schedule(problem, ranks, routes_of(options), passes,
                                       options.memory_bytes.value_or(std::numeric_limits<std::int64_t>::max()));
  const auto resolved = resolve_pair(chosen, problem, ranks);
  if (const auto* reason = std::get_if<std::string>(&resolved)) {
    refuse(fmt::format("{} does not apply ({}) choose another schedule or other ranks", chosen, *reason));
  }
  const auto& pair = std::get<RecipePair>(resolved);
  Prepared prepared{name_of(pair), lower_and_prove(pair.forward, problem, ranks, Pass::forward, options), nullptr};
  check_memory(prepared.forward, options);
  if (passes == Passes::both) {
    prepared.backward =
        std::make_shared<const ProvedSchedule>(lower_and_prove(pair.backward, problem, ranks, Pass::backward, options));
    check_memory(*prepared.backward, options);
  }
  return prepared;
}

ProvedSchedule prove(Schedule schedule) {
  VerifyReport report = verify(schedule);
  if (!report.proved()) {
    refuse(fmt::format("{} {} fails its proof ({}, {} findings in all) correct the program", schedule.outline.name,
                       name_of(schedule.outline.pass), report.findings.front().message, report.findings.size()));
  }
  return {std::move(schedule), std::move(report.counts)};
}

std::int64_t largest(const std::vector<std::int64_t>& by_rank) {
  return *std::max_element(by_rank.begin(), by_rank.end());
}

double mean(const std::vector<std::int64_t>& by_rank) {
  return std::accumulate(by_rank.begin(), by_rank.end(), 0.0) / static_cast<double>(by_rank.size());
}

}  // namespace distattn::cli
