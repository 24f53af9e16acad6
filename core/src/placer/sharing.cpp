#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/src/placer/attempt.hpp"

namespace distattn {
namespace {

constexpr double does_not_fit = -std::numeric_limits<double>::infinity();

/// Messages that cannot hide behind the mesh's own tiles, and tiles that cannot hide behind its messages.
bool fits(const MeshWay& way, double seconds, const PackingWish& wish, double limit_s) {
  const double hide = wish.parts > 1 ? 1.0 / wish.parts : wish.hide;
  return seconds + hide * way.link_s() <= limit_s && way.link_s() + hide * seconds <= limit_s;
}

}  // namespace

/// The cheapest mesh that the ranks have room for now.
std::optional<Attempt::Meshed> Attempt::share(int component, double cheaper_than) const {
  const auto length = static_cast<double>(parcels_.component(component).length());
  const std::vector<double> links = busy();
  std::vector<double> slacks(index(ranks())), scores(index(ranks()));
  for (Rank rank = 0; rank < ranks(); ++rank) slacks[index(rank)] = slack(rank);
  for (const MeshWay& way : meshes_.of(parcels_.component(component))) {
    if (way.cost >= cheaper_than) break;
    const double spare = std::max(2, parcels_.wish.parts) - 1;
    int able = 0;
    for (Rank rank = 0; rank < ranks(); ++rank) {
      const double weight = parcels_.weight(rank), seconds = way.seconds * weight;
      const double needed = seconds - parcels_.light * length * weight / way.ranks();
      const bool can = room(rank) >= std::ceil(way.tokens * weight) + spare && slacks[index(rank)] >= needed &&
                       links[index(rank)] + way.link_s() <= limit_s_ &&
                       fits(way, seconds / costs_.speed(rank), parcels_.wish, limit_s_);
      const double idle =
          costs_.node_size > 1 ? slacks[index(rank)] : std::min(slacks[index(rank)], limit_s_ - links[index(rank)]);
      scores[index(rank)] = can ? idle : does_not_fit;
      able += can ? 1 : 0;
    }
    if (able < way.ranks()) continue;
    std::vector<Rank> chosen = ranks_for(way, scores);
    if (chosen.empty()) continue;
    std::vector<double> seconds = seconds_on(way, chosen);
    bool keeps = true;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const Rank rank = chosen[i];
      const double light = parcels_.light * length * parcels_.weight(rank) / way.ranks();
      keeps = keeps && slacks[index(rank)] >= seconds[i] - light &&
              fits(way, seconds[i] / costs_.speed(rank), parcels_.wish, limit_s_);
    }
    if (keeps) return Meshed{way.cost, &way, std::move(chosen), std::move(seconds)};
  }
  return {};
}

/// A rank computes as much more than others as its row has more queries and its column more keys.
std::vector<double> Attempt::seconds_on(const MeshWay& way, const std::vector<Rank>& ranks) const {
  const int rows = way.shape.rows, columns = way.shape.columns;
  std::vector<double> of_row(index(rows), 0), of_column(index(columns), 0);
  double all = 0;
  const auto place = [wide = way.shape.groups](std::size_t i) { return static_cast<int>(i) / wide; };
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const double weight = parcels_.weight(ranks[i]);
    of_row[index(place(i) % rows)] += weight;
    of_column[index(place(i) / rows)] += weight;
    all += weight;
  }
  std::vector<double> seconds;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const double queries = of_row[index(place(i) % rows)] * rows / all;
    const double keys = of_column[index(place(i) / rows)] * columns / all;
    seconds.push_back(way.seconds * queries * keys);
  }
  return seconds;
}

/// Within a node those of its ranks with most time, of the node where the worst of them has most; across nodes whole
/// ones.
std::vector<Rank> Attempt::ranks_for(const MeshWay& way, const std::vector<double>& scores) const {
  const int wanted = way.ranks(), w = costs_.node_size, width = costs_.domain();
  const auto better = [&](Rank a, Rank b) { return scores[index(a)] > scores[index(b)]; };
  std::vector<Rank> chosen;
  if (wanted <= w || w == 1) {
    double best = does_not_fit;
    for (Rank first = 0; first + width <= ranks() || first == 0; first += width) {
      std::vector<Rank> some(index(std::min(width, ranks() - first)));
      std::iota(some.begin(), some.end(), first);
      if (some.size() < index(wanted)) continue;
      std::stable_sort(some.begin(), some.end(), better);
      some.resize(index(wanted));
      const double worst = scores[index(some.back())];
      if (worst <= best) continue;
      best = worst;
      chosen = std::move(some);
    }
    std::sort(chosen.begin(), chosen.end());
    return chosen;
  }
  std::vector<std::pair<double, Rank>> nodes;  // by what their worst rank has left
  for (Rank first = 0; first + w <= ranks(); first += w) {
    const auto begin = scores.begin() + first;
    nodes.emplace_back(-*std::min_element(begin, begin + w), first);
  }
  std::stable_sort(nodes.begin(), nodes.end());
  const auto needed = index(wanted / w);
  if (nodes.size() < needed || nodes[needed - 1].first == -does_not_fit) return {};
  nodes.resize(needed);
  std::sort(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const auto& [score, first] : nodes) {
    for (Rank rank = first; rank < first + w; ++rank) chosen.push_back(rank);
  }
  return chosen;
}

}  // namespace distattn
