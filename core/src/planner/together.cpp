#include "core/src/planner/together.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/src/format.hpp"
#include "core/src/parallel.hpp"
#include "core/src/planner/on_owners.hpp"
#include "core/src/prediction/described.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

/// Owners on which one order of steps takes this much longer than on the best ones are tried in no other.
constexpr double hopeless_owners = 1.3;

/// For each kind, what computes it on one layout.
using ChoicesOfKinds = std::vector<std::vector<Choice>>;

class Together {
 public:
  Together(const std::vector<LayerKind>& kinds, int ranks, const Machine& machine, const ScheduleRequest& request,
           const Routes& routes)
      : kinds_(kinds),
        ranks_(ranks),
        machine_(machine),
        request_(request),
        only_placed_(request.schedule == "placed"),
        memory_bytes_(only_placed_ ? request.memory_bytes
                                   : std::min(request.memory_bytes, machine.memory_of_rank(ranks))) {
    const bool may_route = !request.node_size && !request.ahead && routes.node_size > 0;
    const int threads = request.threads > 0 ? request.threads : machine.threads_of_rank(ranks);
    for (const LayerKind& kind : kinds) {
      check_described(machine, ranks, kind.problem.dtype);
      trials_.push_back({kind.problem, request, machine,
                         PlacementCosts(kind.problem, request.passes, machine, ranks, threads),
                         may_route ? Routes{} : routes, threads});
    }
  }

  std::variant<std::vector<SharedChoice>, WhyNot> run() {
    if (!only_placed_) {
      if (auto why = add_named()) return std::move(*why);
    }
    const auto placeable = [&](const LayerKind& kind) { return may_place(kind.problem, ranks_); };
    if (only_placed_ || (request_.layout.empty() && std::any_of(kinds_.begin(), kinds_.end(), placeable))) add_placed();
    if (ranking_.empty()) return nothing_left();
    std::stable_sort(ranking_.begin(), ranking_.end(),
                     [](const auto& a, const auto& b) { return a.predicted_s < b.predicted_s; });
    return std::move(ranking_);
  }

 private:
  using LayoutName = std::tuple<LayoutKind, int, std::int64_t>;

  /// Layouts that depend on positions alone, each with the schedules on it that are fastest for a kind.
  std::optional<WhyNot> add_named() {
    std::map<LayoutName, ChoicesOfKinds> layouts;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      auto ranked = rank_schedules(kinds_[k].problem, ranks_, machine_, request_);
      if (auto* const why = std::get_if<WhyNot>(&ranked)) return std::move(*why);
      for (Choice& choice : std::get<std::vector<Choice>>(ranked)) {
        if (choice.placement != nullptr) continue;
        const auto pair = resolve_pair(choice.name, kinds_[k].problem, ranks_);
        const Layout& layout = std::get<RecipePair>(pair).forward.layout;
        if (layout.kind == LayoutKind::chunked || layout.kind == LayoutKind::given) continue;
        ChoicesOfKinds& choices = layouts[{layout.kind, layout.split, layout.block}];
        choices.resize(kinds_.size());
        choices[k].push_back(std::move(choice));
      }
    }
    for (const auto& [layout, choices] : layouts) add_fitting(choices);
    return {};
  }

  /// Owners that were chosen for any of the kinds.
  void add_placed() {
    const std::vector<Placement> owners = all_owners();
    std::vector<std::vector<std::optional<OnOwners>>> tried(owners.size());
    for (auto& of_owners : tried) of_owners.resize(kinds_.size());
    const auto for_each = [&](const std::vector<std::size_t>& some, const auto& body) {
      const auto kinds = static_cast<int>(kinds_.size());
      for_each_in_parallel(static_cast<int>(some.size()) * kinds, 1, [&](int i) {
        const auto kind = index(i % kinds);
        const std::size_t number = some[index(i / kinds)];
        body(tried[number][kind], owners[number], trials_[kind]);
      });
    };
    std::vector<std::size_t> all(owners.size());
    for (std::size_t o = 0; o < all.size(); ++o) all[o] = o;
    for_each(all, [](std::optional<OnOwners>& one, const Placement& placement, const TrialsOfKind& trials) {
      one.emplace(trials, placement).add({Staging::by_distance});
    });
    const auto total = [&](std::size_t number) {
      double seconds = 0;
      for (std::size_t k = 0; k < kinds_.size(); ++k) seconds += kinds_[k].weight * tried[number][k]->seconds();
      return seconds;
    };
    double least = std::numeric_limits<double>::infinity();
    for (const std::size_t o : all) least = std::min(least, total(o));
    std::erase_if(all, [&](std::size_t o) { return total(o) > hopeless_owners * least; });
    for_each(all, [](std::optional<OnOwners>& one, const Placement&, const TrialsOfKind&) {
      one->add({Staging::together, Staging::by_distance_late, Staging::by_place, Staging::by_part});
    });
    std::vector<std::size_t> best = all;
    std::stable_sort(best.begin(), best.end(), [&](std::size_t a, std::size_t b) { return total(a) < total(b); });
    best.resize(std::min<std::size_t>(best.size(), 2));  // other ends may turn their order
    for_each(best, [](std::optional<OnOwners>& one, const Placement&, const TrialsOfKind&) { one->add_other_ends(); });
    for (const std::size_t o : all) {
      ChoicesOfKinds choices;
      for (const auto& of_kind : tried[o]) choices.push_back(of_kind->choices());
      add_fitting(choices);
    }
  }

  /// Each once. What their passes say of steps is left out: it is each kind's own.
  std::vector<Placement> all_owners() {
    std::vector<Placement> owners;
    for (const TrialsOfKind& trials : trials_) {
      auto made = placements_of(trials.problem, ranks_, machine_, trials.threads, request_);
      if (auto* const reason = std::get_if<std::string>(&made)) {
        reasons_.push_back(std::move(*reason));
        continue;
      }
      for (Candidate& candidate : std::get<std::vector<Candidate>>(made)) {
        candidate.placement.passes = {};
        if (std::find(owners.begin(), owners.end(), candidate.placement) == owners.end())
          owners.push_back(std::move(candidate.placement));
      }
    }
    return owners;
  }

  /// Of each kind the fastest; as long as their buffers together are too large, the one that costs least to replace.
  void add_fitting(const ChoicesOfKinds& choices) {
    std::vector<const Choice*> chosen;
    for (const std::vector<Choice>& of_kind : choices) {
      if (of_kind.empty()) return;
      chosen.push_back(&*std::min_element(of_kind.begin(), of_kind.end(), [](const Choice& a, const Choice& b) {
        return a.predicted_s < b.predicted_s;
      }));
    }
    const auto memory = [&] {
      std::int64_t bytes = 0;
      for (const Choice* const choice : chosen) bytes += choice->memory_bytes;
      return bytes;
    };
    for (std::int64_t bytes = memory(); bytes > memory_bytes_; bytes = memory()) {
      least_bytes_ = std::min(least_bytes_, bytes);
      if (!replace_one(choices, chosen)) return;
    }
    SharedChoice& shared = ranking_.emplace_back();
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      shared.each.push_back(*chosen[k]);
      shared.predicted_s += kinds_[k].weight * chosen[k]->predicted_s;
    }
  }

  bool replace_one(const ChoicesOfKinds& choices, std::vector<const Choice*>& chosen) const {
    double least = std::numeric_limits<double>::infinity();
    const Choice** replaced = nullptr;
    const Choice* by = nullptr;
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      for (const Choice& other : choices[k]) {
        if (other.memory_bytes >= chosen[k]->memory_bytes) continue;
        const double longer = kinds_[k].weight * (other.predicted_s - chosen[k]->predicted_s);
        const double a_byte = longer / static_cast<double>(chosen[k]->memory_bytes - other.memory_bytes);
        if (a_byte >= least) continue;
        least = a_byte;
        replaced = &chosen[k];
        by = &other;
      }
    }
    if (replaced != nullptr) *replaced = by;
    return replaced != nullptr;
  }

  WhyNot nothing_left() const {
    WhyNot why{WhyNot::Kind::none_left, request_.schedule, ranks_, "", ""};
    if (least_bytes_ < std::numeric_limits<std::int64_t>::max()) {
      why.reason = fmt::format("no layout has schedules for {} masks that fit {} a rank (needed: {})", kinds_.size(),
                               format_bytes(static_cast<double>(memory_bytes_)),
                               format_bytes(static_cast<double>(least_bytes_)));
      why.message = why.reason + ": give more memory or more ranks";
    } else {
      why.reason =
          fmt::format("{} has no layout for {} masks ({})", request_.schedule, kinds_.size(),
                      reasons_.empty() ? "no schedule applies to all" : fmt::format("{}", fmt::join(reasons_, "; ")));
      why.message = fmt::format("{}: {}", why.reason, instead_of_placing(kinds_.front().problem));
    }
    return why;
  }

  const std::vector<LayerKind>& kinds_;
  int ranks_;
  const Machine& machine_;
  const ScheduleRequest& request_;
  bool only_placed_;
  std::int64_t memory_bytes_;
  std::vector<TrialsOfKind> trials_;  // by kind
  std::vector<SharedChoice> ranking_;
  std::int64_t least_bytes_ = std::numeric_limits<std::int64_t>::max();  // that did not fit
  std::vector<std::string> reasons_;
};

}  // namespace

std::variant<std::vector<SharedChoice>, WhyNot> rank_together(const std::vector<LayerKind>& kinds, int ranks,
                                                              const Machine& machine, const ScheduleRequest& request,
                                                              const Routes& routes) {
  return Together(kinds, ranks, machine, request, routes).run();
}

}  // namespace distattn
