#pragma once
/// What `validate` tries when it is not told: masks and odd shapes that schedules get wrong.

#include <vector>

#include "distattn/problem.hpp"

namespace distattn::cli {

/// Small problems, each odd in its own way: fewer and more queries than keys, fewer tokens than ranks, head groups that
/// do not divide, empty rows, packed documents, 16-bit elements and wire. Each is checked.
std::vector<Problem> usual_problems();

}  // namespace distattn::cli
