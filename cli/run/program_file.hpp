#pragma once
/// Programs in files: a schedule as `show --format json` prints it, or a list of a forward and a backward one.

#include <string>
#include <vector>

#include "distattn/schedule.hpp"

namespace distattn::cli {

/// Throws Error(usage) when the file cannot be read or holds something else. Nothing is proved yet.
std::vector<Schedule> read_programs(const std::string& path);

/// The form that read_programs reads.
std::string programs_json(const std::vector<Schedule>& programs);

}  // namespace distattn::cli
