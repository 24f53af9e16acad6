#pragma once
/// Options that say how it is to be distributed: schedules, ranks, routes.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/options/problem_options.hpp"
#include "distattn/request.hpp"
#include "distattn/table.hpp"

namespace distattn::cli {

class App;

struct ScheduleOptions {
  std::vector<std::string> schedules = {"auto"};
  std::optional<Mode> mode;
  std::vector<Mode> modes;  ///< where several may be given; empty: mode
  std::vector<std::int64_t> ranks = {1};
  std::optional<std::int64_t> node_size;
  std::optional<int> ahead;
  std::optional<std::int64_t> memory_bytes;
  std::optional<Balance> balance;
  std::optional<double> balance_tokens;  ///< a part of a rank's share
  std::string layout, layout_text;       ///< a file, and what is in it; or a name (layout_named), twice
  std::optional<std::string> machine;
};

void add_schedule_options(App& app, ScheduleOptions& options, Several several);
/// For commands that plan for ranks without meeting them: as many as a launcher started, unless --ranks says otherwise.
void take_launched_ranks(const App& app, ScheduleOptions& options);
/// --machine, which also serves programs that are read from a file.
void add_machine_option(App& app, ScheduleOptions& options);

/// The options once for each of several modes.
std::vector<ScheduleOptions> each_mode(const ScheduleOptions& options);

/// What --machine names, else this machine; a stored calibration that cannot be used is noted. Where it has several
/// nodes, --node-size says how large they are.
Machine machine_of(const ScheduleOptions& options);

/// What --mode, --node-size, --ahead, --memory, --balance, --balance-tokens and --layout ask of the library, for a
/// schedule.
ScheduleRequest request_of(const ScheduleOptions& options, const std::string& schedule, Passes passes,
                           const Machine& machine);
/// The library's answer, whose texts name this program's options.
WhyNot with_options_named(WhyNot why);
template <class Made>
std::variant<Made, WhyNot> with_options_named(std::variant<Made, WhyNot> made) {
  if (auto* const why = std::get_if<WhyNot>(&made)) *why = with_options_named(std::move(*why));
  return made;
}

/// "ring on 8 ranks: reason", as notes of what was skipped have it.
std::string skipped_text(const WhyNot& why);

/// What was given of --mode, --node-size, --ahead, --memory, --balance, --balance-tokens and --layout, for ranks to
/// compare; empty: nothing.
std::string given_text(const ScheduleOptions& options);

/// The names that the options mean for a problem: "all" spelt out.
std::vector<std::string> names_of(const ScheduleOptions& options, const Problem& problem, int ranks);

}  // namespace distattn::cli
