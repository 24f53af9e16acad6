#include "core/src/planner/placements.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "core/src/parallel.hpp"
#include "core/src/placer/placer.hpp"
#include "distattn/choose.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

/// Head groups beyond the key heads send keys several times, and beyond this many tiles are small.
constexpr int most_groups = 8;
/// On this many ranks, and where every rank is a node, documents computed in two parts, one after the other, pay.
constexpr int few_ranks = 32;
/// On this many ranks, placements are tried with equal tokens in every way.
constexpr int very_few_ranks = 16;
/// This many parts of a mask fill every rank equally, in whatever way.
constexpr std::size_t many_components = 1 << 18;
/// What binds: without it, the time would be less than this part of what it is.
constexpr double nearly_all = 0.97;

/// As many head groups as are tried, and the assumption that is best most often.
PackingWish usual_wish(const Problem& problem, const ScheduleRequest& request) {
  int groups = std::min(problem.kv_heads, most_groups);
  while (problem.kv_heads % groups != 0) --groups;
  return {groups, 0.3, 1, request.balance_tokens, request.balance};
}

std::vector<PackingWish> wishes_by(const Problem& problem, const ScheduleRequest& request, const Machine& machine,
                                   int ranks, std::size_t components) {
  PackingWish wish = usual_wish(problem, request);
  std::vector<PackingWish> wishes;
  if (ranks > many_ranks || components > many_components) {
    for (const double hide : {0.3, 1.0}) wishes.emplace_back(wish).hide = hide;
    return wishes;
  }
  for (const double hide : {0.1, 0.6}) wishes.emplace_back(wish).hide = hide;
  if (ranks <= few_ranks || machine.ranks_per_node == 1) {  // elsewhere twice the blocks gain nothing
    wishes.emplace_back(wish).hide = 1;
    wishes.back().parts = 2;
  }
  for (; wish.groups > 0; --wish.groups) {
    if (problem.kv_heads % wish.groups != 0) continue;
    for (const double hide : {0.3, 1.0}) wishes.emplace_back(wish).hide = hide;
  }
  for (const Cutting cutting : {Cutting::by_time, Cutting::from_end}) {
    for (const double hide : {0.3, 1.0}) {
      wishes.push_back(usual_wish(problem, request));
      wishes.back().hide = hide;
      wishes.back().cutting = cutting;
      wishes.back().sharers = Sharers::of_a_mesh;
    }
  }
  if (machine.nodes > 1 && machine.ranks_per_node > 1 && ranks > machine.ranks_per_node) {
    for (const int groups : {usual_wish(problem, request).groups, 1}) {
      wishes.push_back(usual_wish(problem, request));
      wishes.back().groups = groups;
      wishes.back().travel = Travel::routed;
    }
  }
  // More freedom is no worse: what is best with less of it, which few placements use up, is tried too.
  for (const double less : {0.0, 0.005, 0.03, 0.1, 0.3}) {
    const bool tried_anyway = less == 0 && ranks <= very_few_ranks;  // in every way
    if (less >= request.balance_tokens || tried_anyway || (less == 0 && ranks > few_ranks)) continue;
    for (const double hide : {0.3, 1.0}) {
      wishes.push_back(usual_wish(problem, request));
      wishes.back().hide = hide;
      wishes.back().balance = less;
    }
  }
  return wishes;
}

/// Of more freedom, what is best with less of it too: with balanced work, equal tokens, because short documents fill
/// any share, and equal ones leave more room; on so few ranks that one token more or less matters, exactly equal ones.
std::vector<PackingWish> wishes_of(const Problem& problem, const ScheduleRequest& request, const Machine& machine,
                                   int ranks, std::size_t components) {
  std::vector<ScheduleRequest> requests = {request};
  if (request.balance == Balance::work) requests.emplace_back(request).balance = Balance::tokens;
  if (ranks <= very_few_ranks && request.balance_tokens > 0) requests.emplace_back(requests.back()).balance_tokens = 0;
  std::vector<PackingWish> wishes;
  for (const ScheduleRequest& each : requests) {
    const std::vector<PackingWish> more = wishes_by(problem, each, machine, ranks, components);
    wishes.insert(wishes.end(), more.begin(), more.end());
  }
  return wishes;
}

/// Of the heaviest component, if it had the ranks that suit it best for itself.
double seconds_of_longest(const std::vector<Component>& components, const PlacementCosts& costs,
                          const PackingWish& wish) {
  const Component& longest = *std::max_element(components.begin(), components.end(),
                                               [](const auto& a, const auto& b) { return a.pairs() < b.pairs(); });
  const auto length = static_cast<double>(longest.length());
  double least = costs.tile(longest.pairs(), length, length);
  Meshes meshes(costs, wish.groups, wish.parts, length);
  for (const MeshWay& way : meshes.of(longest))
    least = std::min(least, std::max(way.seconds + wish.hide * way.link_s(), way.link_s() + wish.hide * way.seconds));
  return least;
}

}  // namespace

const char* what_binds(const Problem& problem, int ranks, const Machine& machine, const ScheduleRequest& request) {
  const BandIndex mask(bands_of(problem.mask));
  const std::vector<Component> components = components_of(problem, mask);
  const int threads = request.threads > 0 ? request.threads : machine.threads_of_rank(ranks);
  const PlacementCosts costs(problem, request.passes, machine, ranks, threads);
  const PackingWish wish = usual_wish(problem, request);
  const Workload workload(components, costs);  // which links do not change
  const auto seconds = [&](const PlacementCosts& of, const PackingWish& with) {
    return packed_seconds(workload, of, with, problem.seq_kv);
  };
  const double all = seconds(costs, wish);
  if (components.size() > 1 && seconds_of_longest(components, costs, wish) >= nearly_all * all) return "one document";
  PlacementCosts near = costs, far = costs;
  near.near.bytes_per_s = far.far.bytes_per_s = std::numeric_limits<double>::infinity();
  double freely = std::numeric_limits<double>::infinity();
  for (const double balance : {0.1, 0.3, 1.0, static_cast<double>(ranks)}) {
    PackingWish free = wish;
    free.balance = std::max(balance, wish.balance);
    freely = std::min(freely, seconds(costs, free));
  }
  const char* binds = "compute";
  double least = nearly_all * all;
  for (const auto& [name, without] :
       {std::pair{"near", seconds(near, wish)}, {"far", seconds(far, wish)}, {"tokens", freely}}) {
    if (without >= least) continue;
    least = without;
    binds = name;
  }
  return binds;
}

std::vector<std::shared_ptr<const Placement>> with_other_ends(const Placement& placement, Pass pass) {
  std::vector<std::shared_ptr<const Placement>> others;
  for (const double part : {0.0, 0.6, 1.4, 2.0}) {
    Placement other = placement;
    for (std::int32_t& last : other.passes[pass].last) last = static_cast<std::int32_t>(std::lround(part * last));
    others.push_back(std::make_shared<const Placement>(std::move(other)));
  }
  return others;
}

Candidate candidate_of(Placement placement, const Problem& problem, const PlacementCosts& costs, Passes passes) {
  const auto segments = std::make_shared<const std::vector<Segment>>(placement.segments);
  const Layout layout{LayoutKind::given, 1, segments};
  Candidate candidate{std::move(placement), nullptr};
  const Placement& made = candidate.placement;
  candidate.tiles = std::make_shared<const Tiles>(shard(problem, made.ranks, layout, made.groups));
  hide_results(candidate.placement, *candidate.tiles, costs, passes);
  return candidate;
}

bool crosses_nodes(const Placement& placement) {
  const auto node = [&](Rank rank) { return rank / placement.node_size; };
  return std::any_of(placement.meshes.begin(), placement.meshes.end(), [&](const PlacedMesh& mesh) {
    return std::any_of(mesh.ranks.begin(), mesh.ranks.end(),
                       [&](Rank rank) { return node(rank) != node(mesh.ranks.front()); });
  });
}

bool may_place(const Problem& problem, int ranks) { return ranks > 1 && problem.seq_q == problem.seq_kv; }

const char* instead_of_placing(const Problem& problem) {
  return problem.seq_q != problem.seq_kv ? "choose another schedule"
                                         : "choose another schedule, or a larger balance_tokens";
}

std::variant<std::vector<Candidate>, std::string> placements_of(const Problem& problem, int ranks,
                                                                const Machine& machine, int threads,
                                                                const ScheduleRequest& request) {
  if (problem.seq_q != problem.seq_kv) {
    return fmt::format("placed deals out the tokens of one sequence, there are {} queries and {} keys", problem.seq_q,
                       problem.seq_kv);
  }
  const BandIndex mask(bands_of(problem.mask));
  const std::vector<Component> components = components_of(problem, mask);
  const PlacementCosts costs(problem, request.passes, machine, ranks, threads);
  const Workload workload(components, costs);
  const std::vector<PackingWish> wishes = wishes_of(problem, request, machine, ranks, components.size());
  std::vector<std::optional<Placement>> found(wishes.size());
  for_each_in_parallel(static_cast<int>(wishes.size()), 1, [&](int w) {
    const auto i = index(w);
    found[i] = place(workload, costs, wishes[i], problem.seq_kv);
  });
  std::vector<Candidate> candidates;
  for (std::optional<Placement>& placement : found) {
    const auto same = [&](const Candidate& candidate) { return candidate.placement == *placement; };
    if (!placement || std::any_of(candidates.begin(), candidates.end(), same)) continue;
    candidates.push_back({*std::move(placement), nullptr});
  }
  if (candidates.empty()) {
    return fmt::format("no placement gives {} ranks tokens within {:g} % of {:.1f}", ranks,
                       100 * request.balance_tokens, static_cast<double>(problem.seq_kv) / ranks);
  }
  for_each_in_parallel(static_cast<int>(candidates.size()), 1, [&](int c) {
    Candidate& candidate = candidates[index(c)];
    candidate = candidate_of(std::move(candidate.placement), problem, costs, request.passes);
  });
  return candidates;
}

}  // namespace distattn
