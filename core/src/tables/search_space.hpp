#pragma once
/// The schedules that `auto` looks at.

#include <span>
#include <string>
#include <vector>

#include "distattn/table.hpp"

namespace distattn {

/// Every schedule that "all" stands for and that applies, and a ring on chunked, so that every layout is probed; why
/// the others do not apply is appended to `reasons`.
std::vector<Recipe> usual_recipes(const Problem& problem, int ranks, std::vector<std::string>& reasons);

/// Every mesh on these layouts that is none of the usual schedules.
std::vector<Recipe> other_meshes(const Problem& problem, int ranks, std::span<const Layout> layouts);

/// Every mesh on one layout; why others do not apply is appended to `reasons`.
std::vector<Recipe> meshes_on(const Layout& layout, const Problem& problem, int ranks,
                              std::vector<std::string>& reasons);

}  // namespace distattn
