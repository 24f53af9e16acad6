#include "core/src/tables/search_space.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/src/tables/recipes.hpp"

namespace distattn {
namespace {

/// Those of the names that apply. Why others do not is appended to `reasons`.
std::vector<Recipe> resolve_all(const std::vector<std::string>& names, const Problem& problem, int ranks,
                                std::vector<std::string>& reasons) {
  std::vector<Recipe> recipes;
  for (const std::string& name : names) {
    RecipeOrReason resolved = resolve_schedule(name, problem, ranks);
    if (auto* recipe = std::get_if<Recipe>(&resolved)) {
      recipes.push_back(std::move(*recipe));
    } else {
      reasons.push_back(fmt::format("{}: {}", name, std::get<std::string>(resolved)));
    }
  }
  return recipes;
}

/// The names of all meshes of these ranks on a layout.
std::vector<std::string> names_of_meshes(const Layout& layout, const Problem& problem, int ranks) {
  std::vector<std::string> names;
  for (int groups = 1; groups <= std::min(ranks, problem.heads); ++groups) {
    for (int rows = 1; ranks % groups == 0 && rows <= ranks / groups; ++rows) {
      if (ranks / groups % rows == 0) names.push_back(name_of_mesh({groups, rows, ranks / groups / rows}, layout));
    }
  }
  return names;
}

}  // namespace

std::vector<Recipe> usual_recipes(const Problem& problem, int ranks, std::vector<std::string>& reasons) {
  std::vector<std::string> names = all_schedule_names(problem, ranks);
  names.push_back(name_of_mesh({1, ranks, 1}, {LayoutKind::chunked}));
  std::vector<Recipe> recipes = resolve_all(names, problem, ranks, reasons);
  std::erase_if(recipes, [](const Recipe& recipe) { return recipe.layout.kind == LayoutKind::given; });
  return recipes;
}

std::vector<Recipe> other_meshes(const Problem& problem, int ranks, std::span<const Layout> layouts) {
  const std::vector<std::string> usual = all_schedule_names(problem, ranks);
  std::vector<std::string> names, reasons;
  for (const Layout& layout : layouts) {
    for (std::string& name : names_of_meshes(layout, problem, ranks)) {
      if (std::find(usual.begin(), usual.end(), name) == usual.end()) names.push_back(std::move(name));
    }
  }
  return resolve_all(names, problem, ranks, reasons);
}

std::vector<Recipe> meshes_on(const Layout& layout, const Problem& problem, int ranks,
                              std::vector<std::string>& reasons) {
  return resolve_all(names_of_meshes(layout, problem, ranks), problem, ranks, reasons);
}

}  // namespace distattn
