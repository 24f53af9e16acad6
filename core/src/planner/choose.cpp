#include "distattn/choose.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "core/src/format.hpp"
#include "core/src/parallel.hpp"
#include "core/src/planner/placements.hpp"
#include "core/src/planner/trials.hpp"
#include "core/src/prediction/described.hpp"
#include "core/src/tables/search_space.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"
#include "distattn/table.hpp"

namespace distattn {
namespace {

/// Trials of each pass that one layout contributes to a ranking, and that are tried again with messages posted early.
constexpr std::size_t best_of_layout = 8, worth_ahead = 3;
/// Layouts whose probes take this much longer than the best layout's are searched no further. Chunked has four times
/// the segments of others and pays only where it balances better, so that it must be the best.
constexpr double hopeless = 1.25;
/// The same next to the best placement. Where a published schedule won in the end, the fastest took at most 1.11 times
/// as long as it before other meshes, and messages posted early, were tried (docs/placement.md).
constexpr double hopeless_next_to_placed = 1.5;
/// The same for placements that are tried in one order of steps.
constexpr double hopeless_placement = 1.3;
/// Masks in few pieces have so few placements that each is tried with messages through nodes too.
constexpr std::size_t few_candidates = 8;

class Search {
 public:
  Search(const Problem& problem, int ranks, const Machine& machine, const ScheduleRequest& request, Routes routes,
         const Latents* latents)
      : problem_(problem),
        ranks_(ranks),
        machine_(machine),
        request_(request),
        routes_(routes),
        latents_(latents),
        threads_(request.threads > 0 ? request.threads : machine.threads_of_rank(ranks)),
        only_placed_(request.schedule == "placed"),
        memory_bytes_(only_placed_ ? request.memory_bytes
                                   : std::min(request.memory_bytes, machine.memory_of_rank(ranks))) {}

  std::variant<std::vector<Choice>, WhyNot> run() {
    try {
      check_described(machine_, ranks_, problem_.dtype);
    } catch (const Error& error) {
      return why_not(error);
    }
    const auto layout = layout_named(request_.layout);
    if (layout) {
      try_all(trials_of(meshes_on(*layout, problem_, ranks_, reasons_)));
    } else if (!only_placed_) {
      try_all(trials_of(usual_recipes(problem_, ranks_, reasons_)));
    }
    if (request_.layout.empty() && (only_placed_ || may_place(problem_, ranks_))) try_placements();
    if (!layout && !only_placed_) try_all(trials_of(other_meshes(problem_, ranks_, hopeful_layouts())));
    if (!only_placed_ && !request_.ahead && routes_.node_size > 0) try_all(best_ahead());
    std::vector<Choice> ranking = pairs();
    if (ranking.empty()) return why_not(nothing_left());
    return ranking;
  }

 private:
  std::vector<Pass> passes() const {
    return request_.passes == Passes::both ? std::vector{Pass::forward, Pass::backward} : std::vector{Pass::forward};
  }

  std::vector<Trial> trials_of(const std::vector<Recipe>& recipes) const {
    std::vector<Trial> trials;
    for (const Recipe& recipe : recipes) {
      for (const Pass pass : passes()) trials.push_back({recipe, pass, routes_});
    }
    return trials;
  }

  /// Every placement in one staging, those that are worth it in the others, and the best with other ends, and with
  /// messages through nodes, posted early too.
  void try_placements() {
    auto made = placements_of(problem_, ranks_, machine_, threads_, request_);
    if (auto* const reason = std::get_if<std::string>(&made)) {
      reasons_.push_back(std::move(*reason));
      return;
    }
    const auto& candidates = std::get<std::vector<Candidate>>(made);
    std::vector<Trial> trials;
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      tiles_[{key_of_candidate(c), candidates[c].placement.groups}] = candidates[c].tiles;
      add_trials(candidates[c], c, Staging::by_distance, placed_routes(), trials);
      if (may_route() && candidates.size() <= few_candidates && crosses(candidates[c]))
        add_trials(candidates[c], c, Staging::by_distance, routes_, trials);
    }
    try_all(std::move(trials));
    const double least = by_time(candidates.size()).front().first;
    trials.clear();
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      const Placement& placement = candidates[c].placement;
      if (seconds(key_of_candidate(c)) > hopeless_placement * least) continue;
      const auto add = [&](Staging staging) { add_trials(candidates[c], c, staging, placed_routes(), trials); };
      add(Staging::together);
      if (placement.meshes.size() > 1) add(Staging::by_distance_late);
      if (1 < placement.node_size && placement.node_size < ranks_) add(Staging::by_place);
      if (!placement.part_of.empty()) add(Staging::by_part);
    }
    try_all(std::move(trials));
    auto sorted = by_time(candidates.size());
    sorted.resize(std::min<std::size_t>(sorted.size(), 2));  // other ends may turn their order
    for (const auto& [time, c] : sorted) try_all(with_other_ends(key_of_candidate(c)));
    if (!may_route()) return;
    const std::size_t best_one = by_time(candidates.size()).front().second;
    trials.clear();
    for (const Staging staging : {Staging::by_distance, Staging::together, Staging::by_place})
      add_trials(candidates[best_one], best_one, staging, routes_, trials);
    try_all(std::move(trials));
    if (!crosses(candidates[best_one])) return;
    trials.clear();
    add_ahead(trials_[key_of_candidate(best_one)], 1, trials);
    try_all(std::move(trials));
  }

  bool crosses(const Candidate& one) const { return ranks_ <= many_ranks && crosses_nodes(one.placement); }

  void add_trials(const Candidate& candidate, std::size_t number, Staging staging, const Routes& routes,
                  std::vector<Trial>& trials) const {
    auto placement = std::make_shared<Placement>(candidate.placement);
    for (PlacedPass& pass : placement->passes) pass.staging = staging;
    for (const Pass pass : passes()) trials.push_back({recipe_of(placement, pass), pass, routes, placement, number});
  }

  /// The fastest trial of each pass on a layout, with fewer and more of each rank's own tiles at its end.
  std::vector<Trial> with_other_ends(const LayoutKey& key) {
    std::vector<Trial> trials;
    for (const Pass pass : passes()) {
      for (Trial trial : fastest(trials_[key], pass, 1)) {
        for (auto& placement : distattn::with_other_ends(*trial.placement, pass)) {
          trial.recipe = recipe_of(placement, pass);
          trials.emplace_back(trial).placement = std::move(placement);
        }
      }
    }
    return trials;
  }

  /// The times of this many candidates and their numbers, the fastest first.
  std::vector<std::pair<double, std::size_t>> by_time(std::size_t candidates) const {
    std::vector<std::pair<double, std::size_t>> sorted;
    for (std::size_t c = 0; c < candidates; ++c) sorted.emplace_back(seconds(key_of_candidate(c)), c);
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }

  /// The least time of all passes on a layout; infinite if one was not planned.
  double seconds(const LayoutKey& key) const {
    const auto found = trials_.find(key);
    double sum = 0;
    for (const Pass pass : passes()) {
      const auto least = found == trials_.end() ? std::vector<Trial>() : fastest(found->second, pass, 1);
      sum += least.empty() ? std::numeric_limits<double>::infinity() : least.front().cost.seconds;
    }
    return sum;
  }

  /// Meshes of their own keep most messages inside nodes, so that routes seldom gain unless they are asked for.
  Routes placed_routes() const { return may_route() ? Routes{} : routes_; }
  bool may_route() const { return !request_.node_size && !request_.ahead && routes_.node_size > 0; }

  void try_all(std::vector<Trial> trials) {
    for (const Trial& trial : trials) look_up(trial);
    for_each_in_parallel(static_cast<int>(trials.size()), 1, [&](int i) { try_one(trials[index(i)]); });
    for (Trial& trial : trials) {
      if (!trial.reason.empty()) {
        reasons_.push_back(fmt::format("{}: {}", trial.recipe.name, trial.reason));
        continue;
      }
      if (trial.placement != nullptr) {
        need_of_placement(trial);
      } else if (trial.routes.ahead == routes_.ahead) {
        needs_[trial.recipe.name] += trial.cost.memory_bytes;
      }
      if (trial.cost.memory_bytes <= memory_bytes_) trials_[key_of(trial)].push_back(std::move(trial));
    }
  }

  /// All placements have one name, and each staging of a pass needs memory of its own: the least of a layout counts.
  void need_of_placement(const Trial& trial) {
    std::map<Pass, std::int64_t>& passes = needs_of_placement_[key_of(trial)];
    const auto [least, added] = passes.try_emplace(trial.pass, trial.cost.memory_bytes);
    if (!added) least->second = std::min(least->second, trial.cost.memory_bytes);
  }

  /// Lookups of a layout and its head groups: made once, before threads share them.
  void look_up(const Trial& trial) {
    const Recipe& recipe = trial.recipe;
    auto& tiles = tiles_[{key_of(trial), recipe.groups}];
    if (tiles == nullptr) tiles = std::make_shared<const Tiles>(shard(problem_, ranks_, recipe.layout, recipe.groups));
    const auto [seen, added] = seen_.try_emplace(key_of(trial), *tiles, machine_.tiles.block);
    if (added) seen->second.remember();
  }

  void try_one(Trial& trial) const {
    try {
      measure(trial);
    } catch (const TooManyMessages& refused) {
      trial.reason = refused.reason();
    }
  }

  void measure(Trial& trial) const {
    const Recipe& recipe = trial.recipe;
    trial.cost = cost_of(recipe, tiles_.at({key_of(trial), recipe.groups}), seen_.at(key_of(trial)), trial.pass,
                         request_.mode.value_or(recipe.mode), trial.routes, machine_, threads_, latents_);
  }

  static bool is_placed(const LayoutKey& key) { return std::get<LayoutKind>(key) == LayoutKind::given; }

  /// The most that a layout may take so far for its other schedules to be tried.
  double worth_trying() const {
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [key, trials] : trials_) {
      if (is_placed(key)) least = std::min(least, seconds(key));
    }
    return hopeless_next_to_placed * least;
  }

  std::vector<Layout> hopeful_layouts() const {
    std::map<LayoutKind, double> seconds;
    for (const auto& [key, trials] : trials_) {
      if (std::get<int>(key) != 1 || is_placed(key)) continue;
      for (const Pass pass : passes()) {
        for (const Trial& trial : fastest(trials, pass, 1)) seconds[std::get<LayoutKind>(key)] += trial.cost.seconds;
      }
    }
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [layout, total] : seconds) least = std::min(least, total);
    const double worth = worth_trying();
    std::vector<Layout> layouts;
    for (const auto& [layout, total] : seconds) {
      const double most = layout == LayoutKind::chunked ? least : hopeless * least;
      if (total <= std::min(most, worth)) layouts.push_back({layout});
    }
    return layouts;
  }

  /// The best so far, with messages posted early.
  std::vector<Trial> best_ahead() const {
    const double worth = worth_trying();
    std::vector<Trial> trials;
    for (const auto& [key, tried] : trials_) {
      if (!is_placed(key) && seconds(key) <= worth) add_ahead(tried, worth_ahead, trials);
    }
    return trials;
  }

  /// Of these trials the fastest of each pass whose messages go through nodes, with these posted early.
  void add_ahead(std::vector<Trial> tried, std::size_t count, std::vector<Trial>& trials) const {
    std::erase_if(tried, [](const Trial& trial) { return trial.routes.node_size == 0; });
    for (const Pass pass : passes()) {
      for (Trial trial : fastest(tried, pass, count)) {
        for (const int ahead : {1, 3, 7}) {
          trial.routes.ahead = ahead;
          trials.push_back(trial);
        }
      }
    }
  }

  /// Combinations of one layout and one `ahead` whose buffers fit beside each other, best first.
  std::vector<Choice> pairs() const {
    std::vector<Choice> ranking;
    for (const auto& [key, all] : trials_) {
      std::map<std::pair<int, int>, std::vector<Trial>> by_routes;
      for (const Trial& trial : all) by_routes[{trial.routes.node_size, trial.routes.ahead}].push_back(trial);
      for (const auto& [routes, trials] : by_routes) add_pairs(trials, ranking);
    }
    std::stable_sort(ranking.begin(), ranking.end(), [](const Choice& a, const Choice& b) {
      return std::tie(a.predicted_s, a.name, a.routes.ahead) < std::tie(b.predicted_s, b.name, b.routes.ahead);
    });
    std::set<std::string> seen;
    std::erase_if(ranking, [&seen](const Choice& choice) { return !seen.insert(choice.name).second; });
    return ranking;
  }

  /// Of the fastest forward passes that fit with a backward pass, each with the fastest of these.
  void add_pairs(const std::vector<Trial>& trials, std::vector<Choice>& ranking) const {
    const std::vector<Trial> backwards = fastest(trials, Pass::backward, trials.size());
    std::size_t forwards = 0;
    for (const Trial& forward : fastest(trials, Pass::forward, trials.size())) {
      std::size_t added = 0;
      const auto add = [&](Choice choice) {
        if (choice.memory_bytes > memory_bytes_) return;
        ranking.push_back(std::move(choice));
        ++added;
      };
      if (request_.passes == Passes::forward) add(choice_of(forward, nullptr));
      for (const Trial& backward : backwards) {
        if (added < best_of_layout) add(choice_of(forward, &backward));
      }
      if (added > 0 && ++forwards == best_of_layout) break;
    }
  }

  Choice choice_of(const Trial& forward, const Trial* backward) const {
    Choice choice{forward.recipe.name, forward.routes, forward.cost.seconds, forward.cost.memory_bytes,
                  forward.placement};
    if (backward == nullptr) return choice;
    if (backward->recipe.name != choice.name) choice.name += "/" + backward->recipe.name;
    if (forward.placement != nullptr) {
      auto both = std::make_shared<Placement>(*forward.placement);
      both->passes[Pass::backward] = backward->placement->passes[Pass::backward];
      choice.placement = std::move(both);
    }
    choice.predicted_s += backward->cost.seconds;
    const auto& [a, b] = std::tie(forward.cost.memory_of_ranks, backward->cost.memory_of_ranks);
    choice.memory_bytes = 0;  // no rank needs the most of both passes, if the ranks differ
    for (std::size_t rank = 0; rank < a.size(); ++rank)
      choice.memory_bytes = std::max(choice.memory_bytes, a[rank] + b[rank]);
    return choice;
  }

  WhyNot why_not(const Error& error) const {
    return {
        WhyNot::Kind::none_left, only_placed_ ? "placed" : "auto", ranks_, error.what(), error.what(), error.kind()};
  }

  Error nothing_left() const {
    if (only_placed_ && needs_of_placement_.empty()) {
      return {ErrorKind::usage,
              fmt::format("placed does not apply ({}): {}", fmt::join(reasons_, "; "), instead_of_placing(problem_))};
    }
    if (needs_.empty() && needs_of_placement_.empty()) {
      return {ErrorKind::usage,
              fmt::format("no schedule applies to {} ranks ({}): give other ranks", ranks_, fmt::join(reasons_, "; "))};
    }
    std::vector<std::pair<std::int64_t, std::string>> sorted;
    for (const auto& [key, passes] : needs_of_placement_) {
      std::int64_t bytes = 0;
      for (const auto& [pass, least] : passes) bytes += least;
      if (sorted.empty() || bytes < sorted.front().first) sorted.assign(1, {bytes, "placed"});
    }
    for (const auto& [name, bytes] : needs_) sorted.emplace_back(bytes, name);
    std::sort(sorted.begin(), sorted.end());
    std::vector<std::string> needs;
    for (const auto& [bytes, name] : sorted)
      needs.push_back(fmt::format("{} {}", name, format_bytes(static_cast<double>(bytes))));
    const bool of_machine = memory_bytes_ < request_.memory_bytes;
    const std::string whose =
        of_machine ? fmt::format("what each of {} ranks has on machine {}; ", ranks_, machine_.name) : "";
    return {of_machine && machine_.name == "this" ? ErrorKind::environment : ErrorKind::usage,
            fmt::format("no schedule fits {} a rank ({}needed: {}): give more memory or more ranks",
                        format_bytes(static_cast<double>(memory_bytes_)), whose, fmt::join(needs, ", "))};
  }

  const Problem& problem_;
  int ranks_;
  const Machine& machine_;
  const ScheduleRequest& request_;
  Routes routes_;
  const Latents* latents_;
  int threads_;
  bool only_placed_;
  std::int64_t memory_bytes_;
  std::map<std::pair<LayoutKey, int>, std::shared_ptr<const Tiles>> tiles_;  // by layout and head groups
  std::map<LayoutKey, SeenTiles> seen_;                                      // by layout
  std::map<LayoutKey, std::vector<Trial>> trials_;                           // that fit the memory, by layout
  std::map<LayoutKey, std::map<Pass, std::int64_t>> needs_of_placement_;
  std::map<std::string, std::int64_t> needs_;  // of all, all passes together
  std::vector<std::string> reasons_;           // why the others do not apply
};

}  // namespace

std::variant<std::vector<Choice>, WhyNot> rank_schedules(const Problem& problem, int ranks, const Machine& machine,
                                                         const ScheduleRequest& request, const Latents* latents) {
  auto routes = routes_of(request, machine, ranks);
  if (auto* const why = std::get_if<WhyNot>(&routes)) return std::move(*why);
  return Search(problem, ranks, machine, request, std::get<Routes>(routes), latents).run();
}

ScheduleRequest with_choice(ScheduleRequest request, const Choice& choice) {
  request.schedule = choice.name;
  request.node_size = choice.routes.node_size;
  request.ahead = choice.routes.ahead;
  request.layout = choice.placement != nullptr ? to_json(*choice.placement) : "";  // a name has its layout
  return request;
}

}  // namespace distattn
