#pragma once
/// The page of a plan: its rows, and the best of them drawn.

#include <string>

#include "cli/plan/plan_rows.hpp"
#include "cli/tools/page.hpp"

namespace distattn::cli {

/// `table` has a row for each of `rows`. Of each problem and number of ranks the best schedules are drawn, by the time
/// of all passes, as far as the page stays small. Notes what is drawn coarser.
std::string page_of(const PlanRows& rows, const PlanRequest& request, const Machine& machine, PageTable table);

}  // namespace distattn::cli
