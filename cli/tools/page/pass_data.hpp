#pragma once
/// One pass of a schedule as the JSON that the page's script reads (page/pass.js).

#include <cstddef>
#include <nlohmann/json.hpp>

#include "cli/tools/draw.hpp"

namespace distattn {

/// steps: every tile, message and step. coarse: a grid of cells, busy times, and totals.
enum class PageDetail { steps, coarse };

/// Numbers that the details take, about six characters each.
std::size_t numbers_of_steps(const Drawing& drawing);
nlohmann::ordered_json pass_data(const Drawing& drawing, PageDetail detail);

}  // namespace distattn
