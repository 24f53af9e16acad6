#include <algorithm>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "core/src/tables/recipes.hpp"
#include "distattn/error.hpp"
#include "distattn/table.hpp"

namespace distattn {
namespace {

std::vector<NamedSchedule>& registry() {
  static std::vector<NamedSchedule> all = published_schedules();
  return all;
}

const NamedSchedule* find_schedule(std::string_view name) {
  const auto found =
      std::find_if(registry().begin(), registry().end(), [&](const NamedSchedule& s) { return s.name == name; });
  return found == registry().end() ? nullptr : &*found;
}

std::string known_names() {
  std::vector<std::string> names;
  for (const NamedSchedule& schedule : registry()) names.push_back(schedule.grammar());
  return fmt::format("{}", fmt::join(names, ", "));
}

void check_pair(std::string_view name, std::string_view forward, std::string_view backward) {
  if (forward.empty() || backward.empty())
    refuse(fmt::format("schedule {} lacks a side (a pair names the forward and the backward one): write F/B", name));
  for (const std::string_view both : {"auto", "placed"}) {
    if (forward == both || backward == both)
      refuse(fmt::format("schedule {0} ({1} chooses both passes together): write {1} alone, or name two", name, both));
  }
}

}  // namespace

std::string grammar_of(std::string_view name, const ScheduleArguments& takes) {
  std::vector<std::string> may_follow = takes.words;
  if (!takes.optional.empty()) may_follow.insert(may_follow.begin(), takes.optional);
  return fmt::format("{}{}{}", name, takes.required.empty() ? "" : ":" + takes.required,
                     may_follow.empty() ? "" : fmt::format("[:{}]", fmt::join(may_follow, "|")));
}

std::string NamedSchedule::grammar() const { return grammar_of(name, takes); }

const std::vector<NamedSchedule>& schedules() { return registry(); }

void register_schedule(NamedSchedule schedule) {
  if (schedule.name.empty() || schedule.name.find_first_of(":/,") != std::string::npos)
    refuse(fmt::format(
        "schedule name '{}' cannot be registered (\":/,\" separate names and arguments): choose a plain word",
        schedule.name));
  if (find_schedule(schedule.name))
    refuse(fmt::format("schedule {} is already registered (names are unique): choose another", schedule.name));
  registry().push_back(std::move(schedule));
}

RecipeOrReason resolve_schedule(std::string_view name, const Problem& problem, int ranks) {
  if (ranks < 1) refuse(fmt::format("{} ranks (someone has to compute): give 1 or more", ranks));
  const std::size_t colon = name.find(':');
  const NamedSchedule* schedule = find_schedule(name.substr(0, colon));
  if (!schedule)
    refuse(fmt::format("schedule {} is not known (there are {}): choose one of these", name, known_names()));
  if (colon == std::string_view::npos) return schedule->resolve({}, problem, ranks);
  if (colon + 1 == name.size())
    refuse(fmt::format("schedule {} ends in a colon (arguments follow it): its form is {}", name, schedule->grammar()));
  return schedule->resolve(name.substr(colon + 1), problem, ranks);
}

namespace {

std::variant<RecipePair, std::string> pair_of(std::string_view name, const Layout* layout, const Problem& problem,
                                              int ranks) {
  const std::size_t slash = name.find('/');
  if (slash != std::string_view::npos) check_pair(name, name.substr(0, slash), name.substr(slash + 1));
  RecipeOrReason forward = resolve_schedule(name.substr(0, slash), problem, ranks);
  RecipeOrReason backward =
      slash == std::string_view::npos ? forward : resolve_schedule(name.substr(slash + 1), problem, ranks);
  for (RecipeOrReason* side : {&forward, &backward}) {
    const auto* const recipe = std::get_if<Recipe>(side);
    if (layout != nullptr && recipe != nullptr) *side = on_layout(Recipe(*recipe), *layout, problem, ranks);
    if (auto* reason = std::get_if<std::string>(side)) return std::move(*reason);
  }
  RecipePair pair{std::get<Recipe>(std::move(forward)), std::get<Recipe>(std::move(backward))};
  if (pair.forward.layout != pair.backward.layout)
    return fmt::format("{} keeps its tokens in layout {} and {} in {}, a pair shares one layout", pair.forward.name,
                       to_string(pair.forward.layout), pair.backward.name, to_string(pair.backward.layout));
  return pair;
}

}  // namespace

std::variant<RecipePair, std::string> resolve_pair(std::string_view name, const Problem& problem, int ranks) {
  return pair_of(name, nullptr, problem, ranks);
}

std::variant<RecipePair, std::string> resolve_pair(std::string_view name, const Layout& layout, const Problem& problem,
                                                   int ranks) {
  return pair_of(name, &layout, problem, ranks);
}

std::string name_of(const RecipePair& pair) {
  return pair.forward.name == pair.backward.name ? pair.forward.name : pair.forward.name + "/" + pair.backward.name;
}

std::vector<std::string> all_schedule_names(const Problem& problem, int ranks) {
  std::vector<std::string> names;
  for (const NamedSchedule& schedule : registry()) {
    if (!schedule.usual_arguments) {
      names.push_back(schedule.name);
      continue;
    }
    for (const std::string& arguments : schedule.usual_arguments(problem, ranks))
      names.push_back(arguments.empty() ? schedule.name : schedule.name + ":" + arguments);
  }
  return names;
}

}  // namespace distattn
