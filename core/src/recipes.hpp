#pragma once
/// The schedules that distattn brings along.

#include <vector>

#include "distattn/table.hpp"

namespace distattn {

/// In the order in which help lists them.
std::vector<NamedSchedule> published_schedules();

}  // namespace distattn
