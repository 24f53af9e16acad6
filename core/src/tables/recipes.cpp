#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "core/src/tables/recipes.hpp"
#include "distattn/error.hpp"
#include "distattn/table.hpp"

namespace distattn {
namespace {

ScheduleArguments burst_arguments() { return {.words = {"zigzag"}}; }
ScheduleArguments attention2d_arguments() { return {.optional = "RxC"}; }
ScheduleArguments usp_arguments() { return {.required = "U"}; }
ScheduleArguments mesh_arguments() {
  ScheduleArguments takes{.required = "UxRxC"};
  for (const LayoutKind kind : named_layouts)
    takes.words.emplace_back(kind == LayoutKind::striped ? "striped[:B]" : name_of(kind));
  return takes;
}

using TableMaker = std::function<Table(std::shared_ptr<const Tiles>, int node_size)>;

TableMaker on_mesh(MeshShape shape) {
  return
      [shape](std::shared_ptr<const Tiles> tiles, int node_size) { return mesh(std::move(tiles), shape, node_size); };
}

std::string to_string(const MeshShape& shape) {
  return fmt::format("{}x{}x{}", shape.groups, shape.rows, shape.columns);
}

/// A recipe on a mesh, unless its ranks or heads do not fit.
RecipeOrReason mesh_recipe(std::string name, const Layout& layout, MeshShape shape, const Problem& problem, int ranks,
                           Mode mode = Mode::overlapped) {
  const std::int64_t shards = std::int64_t{shape.groups} * shape.rows;
  if (shards > ranks || shards * shape.columns != ranks)
    return fmt::format("{} does not make a mesh of {} rank{}", to_string(shape), ranks, ranks == 1 ? "" : "s");
  if (shape.groups > problem.heads)
    return fmt::format("{} head groups need as many heads, there {} {}", shape.groups,
                       problem.heads == 1 ? "is" : "are", problem.heads);
  if (std::string why = why_not_dealt(layout, problem, ranks); !why.empty()) return why;
  return Recipe{std::move(name), layout, shape.groups, mode, on_mesh(shape), shape};
}

/// The rows of Attention2D's rectangle: the divisor of `ranks` nearest its square root, the larger on a tie.
int rows_near_square(int ranks) {
  int below = 1;
  for (int r = 1; r <= ranks / r; ++r)
    if (ranks % r == 0) below = r;
  // below and above = ranks/below lie on either side of the root; below is nearer when the root lies under their
  // middle.
  const int above = ranks / below;
  const std::int64_t sum = std::int64_t{below} + above;
  return std::int64_t{4} * ranks < sum * sum ? below : above;
}

[[noreturn]] void refuse_arguments(std::string_view schedule, std::string_view arguments,
                                   const ScheduleArguments& takes = {}) {
  refuse(fmt::format("schedule {}{}{} is not understood (its form is {}): write it so", schedule,
                     arguments.empty() ? "" : ":", arguments, grammar_of(schedule, takes)));
}

/// "2x4x1" as `count` sizes of at least 1, or nothing.
std::optional<std::vector<int>> parse_sizes(std::string_view text, std::size_t count) {
  std::vector<int> sizes;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (sizes.size() < count) {
    int size = 0;
    const auto [rest, error] = std::from_chars(at, end, size);
    if (error != std::errc{} || size < 1) return std::nullopt;
    sizes.push_back(size);
    at = rest;
    if (sizes.size() < count && (at == end || *at++ != 'x')) return std::nullopt;
  }
  return at == end ? std::optional(sizes) : std::nullopt;
}

/// A schedule without arguments on a mesh of all ranks.
NamedSchedule fixed(const std::string& name, LayoutKind layout, MeshShape (*shape_of)(int ranks),
                    Mode mode = Mode::overlapped) {
  const auto resolve = [=](std::string_view arguments, const Problem& problem, int ranks) -> RecipeOrReason {
    if (!arguments.empty()) refuse_arguments(name, arguments);
    return mesh_recipe(name, {layout}, shape_of(ranks), problem, ranks, mode);
  };
  return {name, {}, resolve, {}};
}

MeshShape one_row_each(int ranks) { return {1, ranks, 1}; }
MeshShape one_column_each(int ranks) { return {1, 1, ranks}; }
MeshShape one_group_each(int ranks) { return {ranks, 1, 1}; }

RecipeOrReason resolve_burst(std::string_view arguments, const Problem& problem, int ranks) {
  if (arguments.empty()) return mesh_recipe("burst", {LayoutKind::block}, one_column_each(ranks), problem, ranks);
  if (arguments != "zigzag") refuse_arguments("burst", arguments, burst_arguments());
  return mesh_recipe("burst:zigzag", {LayoutKind::zigzag}, one_column_each(ranks), problem, ranks);
}

RecipeOrReason resolve_attention2d(std::string_view arguments, const Problem& problem, int ranks) {
  const int rows = rows_near_square(ranks);
  if (arguments.empty())
    return mesh_recipe("attention2d", {LayoutKind::striped}, {1, rows, ranks / rows}, problem, ranks);
  const auto sizes = parse_sizes(arguments, 2);
  if (!sizes) refuse_arguments("attention2d", arguments, attention2d_arguments());
  const MeshShape shape{1, (*sizes)[0], (*sizes)[1]};
  return mesh_recipe(fmt::format("attention2d:{}x{}", shape.rows, shape.columns), {LayoutKind::striped}, shape, problem,
                     ranks);
}

RecipeOrReason resolve_usp(std::string_view arguments, const Problem& problem, int ranks) {
  const auto sizes = parse_sizes(arguments, 1);
  if (!sizes) refuse_arguments("usp", arguments, usp_arguments());
  const int groups = (*sizes)[0];
  if (ranks % groups != 0)
    return fmt::format("{} head groups do not divide {} rank{}", groups, ranks, ranks == 1 ? "" : "s");
  return mesh_recipe(fmt::format("usp:{}", groups), {LayoutKind::zigzag}, {groups, ranks / groups, 1}, problem, ranks);
}

RecipeOrReason resolve_mesh(std::string_view arguments, const Problem& problem, int ranks) {
  const std::size_t colon = arguments.find(':');
  const auto sizes = parse_sizes(arguments.substr(0, colon), 3);
  const auto layout =
      colon == std::string_view::npos ? Layout{LayoutKind::zigzag} : layout_named(arguments.substr(colon + 1));
  if (!sizes || !layout) refuse_arguments("mesh", arguments, mesh_arguments());
  const MeshShape shape{(*sizes)[0], (*sizes)[1], (*sizes)[2]};
  return mesh_recipe(fmt::format("mesh:{}:{}", to_string(shape), to_string(*layout)), *layout, shape, problem, ranks);
}

/// U in 2, 4, 8 where it divides the ranks and fits the heads.
std::vector<int> usual_group_counts(const Problem& problem, int ranks) {
  std::vector<int> out;
  for (const int groups : {2, 4, 8})
    if (ranks % groups == 0 && groups <= problem.heads) out.push_back(groups);
  return out;
}

std::vector<std::string> usual_usp(const Problem& problem, int ranks) {
  std::vector<std::string> out;
  for (const int groups : usual_group_counts(problem, ranks)) out.push_back(fmt::format("{}", groups));
  return out;
}

std::vector<std::string> usual_meshes(const Problem& problem, int ranks) {
  std::vector<std::string> out;
  for (const int groups : usual_group_counts(problem, ranks)) {
    const int rows = rows_near_square(ranks / groups);
    out.push_back(to_string(MeshShape{groups, rows, ranks / groups / rows}) + ":zigzag");
  }
  return out;
}

/// DistFlashAttn's Algorithm 2 gives a rank's helpers the keys that come earlier, token by token of one sequence.
NamedSchedule helper_schedule(const std::string& name, const Layout& layout,
                              Table (*table)(std::shared_ptr<const Tiles>)) {
  const auto resolve = [=](std::string_view arguments, const Problem& problem, int) -> RecipeOrReason {
    if (!arguments.empty()) refuse_arguments(name, arguments);
    if (problem.seq_q != problem.seq_kv)
      return fmt::format("{} pairs query and key shards of one sequence, there are {} queries and {} keys", name,
                         problem.seq_q, problem.seq_kv);
    if (sees_future(problem)) return fmt::format("{} needs a mask in which no query sees a later key", name);
    return Recipe{name, layout, 1, Mode::overlapped,
                  [table](std::shared_ptr<const Tiles> tiles, int) { return table(std::move(tiles)); }};
  };
  return {name, {}, resolve, {}};
}

/// Applies to every sequence that sees itself. Its layout is made by the planner, for a machine.
RecipeOrReason resolve_placed(std::string_view arguments, const Problem& problem, int) {
  if (!arguments.empty()) refuse_arguments("placed", arguments);
  if (problem.seq_q != problem.seq_kv)
    return fmt::format("placed deals out the tokens of one sequence, there are {} queries and {} keys", problem.seq_q,
                       problem.seq_kv);
  const auto unplaced = [](const std::shared_ptr<const Tiles>&, int) -> Table {
    refuse("placed has no table yet (the planner makes one for a machine): plan it");
  };
  return Recipe{"placed", {LayoutKind::given}, 1, Mode::overlapped, unplaced};
}

}  // namespace

std::string name_of_mesh(const MeshShape& shape, const Layout& layout) {
  const int ranks = shape.ranks();
  if (layout.block > 1) return fmt::format("mesh:{}:{}", to_string(shape), to_string(layout));
  switch (layout.kind) {
    case LayoutKind::block:
      if (shape.rows == ranks) return "ring";
      if (shape.columns == ranks) return "burst";
      if (shape.groups == ranks) return "ulysses";
      break;
    case LayoutKind::zigzag:
      if (shape.rows == ranks) return "zigzag-ring";
      if (shape.columns == ranks) return "burst:zigzag";
      if (shape.columns == 1) return fmt::format("usp:{}", shape.groups);
      break;
    case LayoutKind::striped:
      if (shape.rows == ranks) return "striped-ring";
      if (shape.groups > 1) break;
      if (shape.rows == rows_near_square(ranks)) return "attention2d";
      return fmt::format("attention2d:{}x{}", shape.rows, shape.columns);
    case LayoutKind::chunked:
    case LayoutKind::given:
      break;
  }
  return fmt::format("mesh:{}:{}", to_string(shape), to_string(layout));
}

RecipeOrReason on_layout(const Recipe& recipe, const Layout& layout, const Problem& problem, int ranks) {
  if (recipe.layout == layout) return recipe;
  if (!recipe.mesh || recipe.mode != Mode::overlapped) return fmt::format("{} has a layout of its own", recipe.name);
  return mesh_recipe(name_of_mesh(*recipe.mesh, layout), layout, *recipe.mesh, problem, ranks);
}

std::vector<NamedSchedule> published_schedules() {
  return {
      fixed("ring", LayoutKind::block, one_row_each),
      fixed("zigzag-ring", LayoutKind::zigzag, one_row_each),
      fixed("striped-ring", LayoutKind::striped, one_row_each),
      {"burst", burst_arguments(), resolve_burst,
       [](const Problem&, int) {
         return std::vector<std::string>{"", "zigzag"};
       }},
      {"attention2d", attention2d_arguments(), resolve_attention2d, {}},
      fixed("ulysses", LayoutKind::block, one_group_each),
      {"usp", usp_arguments(), resolve_usp, usual_usp},
      fixed("allgather", LayoutKind::zigzag, one_row_each, Mode::gathered),
      helper_schedule("balanced", {LayoutKind::block, 1}, balanced),
      helper_schedule("balanced-split", {LayoutKind::block, 2}, balanced_split),
      {"mesh", mesh_arguments(), resolve_mesh, usual_meshes},
      {"placed", {}, resolve_placed, {}},
  };
}

}  // namespace distattn
