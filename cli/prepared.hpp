#pragma once
/// Schedules ready to run: resolved by name or read from a file, lowered and proved.

#include <memory>
#include <string>

#include "distattn/lower.hpp"
#include "distattn/schedule.hpp"
#include "distattn/verify.hpp"
#include "schedule_options.hpp"

namespace distattn::cli {

/// One pass's programs and the counts of their proof.
struct ProvedSchedule {
  Schedule schedule;
  Counts counts;
};

struct Prepared {
  std::string name;  ///< "ring", "ring/burst"
  ProvedSchedule forward;
  std::shared_ptr<const ProvedSchedule> backward;  ///< null: forward only
};

/// Throws Error(usage) with the reason when the schedule does not apply, fails its proof, or needs more than --memory.
Prepared prepare(const std::string& name, const Problem& problem, int ranks, const ScheduleOptions& options,
                 Passes passes);

/// Proves a schedule that came from elsewhere. Throws Error(usage) with the first finding.
ProvedSchedule prove(Schedule schedule);

/// Figures over ranks that every report shows.
std::int64_t largest(const std::vector<std::int64_t>& by_rank);
double mean(const std::vector<std::int64_t>& by_rank);

}  // namespace distattn::cli
