#pragma once
/// Random problems for tests, and the recipes that apply to one.

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "distattn/table.hpp"
#include "support/masks.hpp"

namespace distattn::test {

/// Up to 80 keys and 90 queries, any mask, GQA; heads of 8.
inline Problem random_problem(Random& random) {
  Problem problem;
  problem.seq_kv = random.between(1, 80);
  problem.seq_q = random.one_in(3) ? random.between(1, 90) : problem.seq_kv;
  problem.kv_heads = static_cast<int>(random.between(1, 4));
  problem.heads = problem.kv_heads * static_cast<int>(random.between(1, 4));
  problem.head_dim = problem.value_dim = 8;
  problem.mask = random_mask(random, problem.seq_kv);
  check(problem);
  return problem;
}

/// Every name that resolves to a table for the problem, with a mesh of each shape on a random layout. That of "placed"
/// is the planner's.
inline std::vector<Recipe> recipes_for(const Problem& problem, int ranks, Random& random) {
  std::vector<std::string> names = all_schedule_names(problem, ranks);
  for (int groups = 1; groups <= ranks; ++groups)
    for (int rows = 1; groups * rows <= ranks; ++rows)
      if (ranks % (groups * rows) == 0)
        names.push_back("mesh:" + std::to_string(groups) + "x" + std::to_string(rows) + "x" +
                        std::to_string(ranks / groups / rows) + ":" +
                        random.pick<std::string>({"block", "zigzag", "striped", "striped:3", "striped:16", "chunked"}));
  std::vector<Recipe> recipes;
  for (const std::string& name : names) {
    RecipeOrReason resolved = resolve_schedule(name, problem, ranks);
    auto* const recipe = std::get_if<Recipe>(&resolved);
    if (recipe != nullptr && recipe->layout.kind != LayoutKind::given) recipes.push_back(std::move(*recipe));
  }
  return recipes;
}

}  // namespace distattn::test
