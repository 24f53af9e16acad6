#pragma once
/// The schedules that distattn brings along.

#include <string>
#include <string_view>
#include <vector>

#include "distattn/table.hpp"

namespace distattn {

/// In the order in which help lists them.
std::vector<NamedSchedule> published_schedules();

/// How a schedule is written that takes these arguments: "burst[:zigzag]".
std::string grammar_of(std::string_view name, const ScheduleArguments& takes);

/// The name under which a mesh is best known: "zigzag-ring" rather than "mesh:1x8x1:zigzag".
std::string name_of_mesh(const MeshShape& shape, const Layout& layout);

/// The same mesh of ranks on another layout, or why there is none.
RecipeOrReason on_layout(const Recipe& recipe, const Layout& layout, const Problem& problem, int ranks);

}  // namespace distattn
