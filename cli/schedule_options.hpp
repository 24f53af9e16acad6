#pragma once
/// Options that say how it is to be distributed: schedules, ranks, routes.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "distattn/choose.hpp"
#include "distattn/lower.hpp"
#include "distattn/table.hpp"
#include "problem_options.hpp"

namespace distattn::cli {

struct ScheduleOptions {
  std::vector<std::string> schedules = {"auto"};
  std::optional<Mode> mode;
  std::vector<std::int64_t> ranks = {1};
  std::optional<std::int64_t> node_size;
  std::optional<int> ahead;
  std::optional<std::int64_t> memory_bytes;
};

void add_schedule_options(CLI::App& app, ScheduleOptions& options, Several several);

/// Refuses --ahead without nodes that it could be ahead between.
Routes routes_of(const ScheduleOptions& options);

/// The names that the options mean for a problem: "all" spelt out.
std::vector<std::string> names_of(const ScheduleOptions& options, const Problem& problem, int ranks);

/// "ring/burst" where the two passes differ, else "ring".
std::string name_of(const RecipePair& pair);

}  // namespace distattn::cli
