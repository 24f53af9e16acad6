#pragma once
/// Which tiles each rank computes in each step, read back from its programs: the table as DistFlashAttn's Figure 1.

#include <string>

#include "distattn/schedule.hpp"

namespace distattn {

/// Rows ranks, columns steps that compute something; in further panels where that is wider than `panel_width`.
std::string tile_grid(const Schedule& schedule, std::size_t panel_width);

}  // namespace distattn
