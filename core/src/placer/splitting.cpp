#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/src/placer/attempt.hpp"

namespace distattn {
namespace {

constexpr std::size_t most_pieces = 16;
constexpr std::size_t domains_tried = 2;
constexpr int attempts = 6;
constexpr double over = 0.002;  // of the largest slack: not worth another attempt

std::int64_t grain_of(std::int64_t length) { return std::clamp<std::int64_t>(length / 16, 1, coarsest_grain); }

std::int64_t rounded(double position, std::int64_t grain) {
  return std::llround(position / static_cast<double>(grain)) * grain;
}

}  // namespace

std::vector<std::vector<Rank>> Attempt::domains() const {
  std::vector<std::vector<Rank>> all;
  for (Rank first = 0; first < ranks(); first += costs_.domain()) {
    all.emplace_back(index(std::min(costs_.domain(), ranks() - first)));
    std::iota(all.back().begin(), all.back().end(), first);
  }
  return all;
}

/// Into pieces one after the other for the ranks of one domain, by what these have left, as few as possible.
std::optional<Attempt::Split> Attempt::split(int component) const {
  std::vector<std::pair<double, std::vector<Rank>>> by_slack;
  for (std::vector<Rank>& domain : domains()) {
    double sum = 0;
    for (const Rank rank : domain) sum += std::max(0.0, slack(rank));
    by_slack.emplace_back(-sum, std::move(domain));
  }
  std::stable_sort(by_slack.begin(), by_slack.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  by_slack.resize(std::min(by_slack.size(), domains_tried));
  std::optional<Split> best;
  for (const auto& [sum, domain] : by_slack) {
    std::optional<Split> found = split_in(component, domain);
    if (found && (!best || found->cost < best->cost)) best = std::move(found);
  }
  return best;
}

std::optional<Attempt::Split> Attempt::split_in(int component, std::span<const Rank> domain) const {
  const auto length = static_cast<double>(parcels_.component(component).length());
  const auto grain = static_cast<double>(grain_of(parcels_.component(component).length()));
  std::vector<Rank> able;
  for (const Rank rank : domain) {
    if (slack(rank) > 0 && room(rank) > grain) able.push_back(rank);
  }
  const std::vector<double> links = busy();
  const auto score = [&](Rank rank) {
    return costs_.node_size > 1 ? slack(rank) : std::min(slack(rank), limit_s_ - links[index(rank)]);
  };
  std::stable_sort(able.begin(), able.end(), [&](Rank a, Rank b) { return score(a) > score(b); });
  double slacks = 0, rooms = 0;
  for (std::size_t k = 1; k <= std::min(able.size(), most_pieces); ++k) {
    slacks += slack(able[k - 1]);
    rooms += room(able[k - 1]);
    if (slacks < parcels_.excess_of(component) || rooms < length) continue;
    std::optional<Split> best;
    const std::span<const Rank> owners(able.data(), k);
    std::vector<std::optional<Cuts>> ways;
    ways.push_back(cut(component, {owners.begin(), owners.end()}));
    if (parcels_.wish.cutting == Cutting::from_end) ways.push_back(cut_back(component, owners));
    for (std::optional<Cuts>& cuts : ways) {
      if (!cuts || !links_have(*cuts)) continue;
      const double cost = cost_of(component, *cuts);
      if (!best || cost < best->cost) best = Split{cost, *std::move(cuts)};
    }
    if (best) return best;
  }
  return {};
}

bool Attempt::links_have(const Cuts& cuts) const {
  for (std::size_t i = 0; i < cuts.ranks.size(); ++i) {
    if (!link_has(cuts.ranks[i], cuts.in[i], cuts.out[i])) return false;
  }
  return true;
}

/// On top of computing the component on one rank.
double Attempt::cost_of(int component, const Cuts& cuts) const {
  const double seconds = std::accumulate(cuts.seconds.begin(), cuts.seconds.end(), 0.0);
  // As in the cost of a mesh, what the busiest link carries counts for every rank: the others wait for it.
  const double busiest =
      std::max(*std::max_element(cuts.in.begin(), cuts.in.end()), *std::max_element(cuts.out.begin(), cuts.out.end()));
  const double bytes = busiest * static_cast<double>(cuts.ranks.size());
  const double latency = costs_.link().latency_s * static_cast<double>(costs_.passes.size() * (cuts.ranks.size() - 1));
  return seconds - parcels_.work_of(component) + bytes / costs_.link().bytes_per_s + latency;
}

/// Pieces for these owners in order, which end where their shares of the pairs have been seen. None is larger than its
/// owner has room for; an owner without a piece is left out.
std::optional<Cuts> Attempt::cut_by(int component, std::span<const Rank> owners, std::span<const double> shares) const {
  const Component& whole = parcels_.component(component);
  const std::int64_t grain = grain_of(whole.length());
  Cuts cuts;
  double share = 0;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    share += shares[i];
    const auto has_room = static_cast<std::int64_t>(room(owners[i]));
    std::int64_t end = whole.length();
    if (i + 1 < owners.size())
      end = std::clamp(std::min(rounded(whole.cut_at(share), grain), begin + has_room / grain * grain), begin, end);
    if (end - begin > has_room) return {};
    if (end == begin) continue;
    cuts.ends.push_back(end);
    cuts.ranks.push_back(owners[i]);
    begin = end;
  }
  count(component, cuts);
  return cuts;
}

/// Cuts so that every rank gets as much work as it has time for. Those with most room come first: early pieces are long
/// and cost little.
std::optional<Cuts> Attempt::cut(int component, std::vector<Rank> owners) const {
  const auto room_then_slack = [&](Rank a, Rank b) {
    return std::pair(room(a), -slack(a)) > std::pair(room(b), -slack(b));
  };
  std::stable_sort(owners.begin(), owners.end(), room_then_slack);
  std::vector<double> shares;
  for (const Rank rank : owners) shares.push_back(slack(rank));
  const double most = *std::max_element(shares.begin(), shares.end());
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (double& share : shares) share /= sum;
    std::optional<Cuts> cuts = cut_by(component, owners, shares);
    if (!cuts) return {};
    double worst = 0;
    for (std::size_t i = 0, n = 0; i < owners.size() && n < cuts->ranks.size(); ++i) {
      if (cuts->ranks[n] != owners[i]) continue;
      const double needs = cuts->seconds[n] - parcels_.light * static_cast<double>(cuts->count(n));
      const double has = slack(owners[i]);
      worst = std::max(worst, needs - has);
      shares[i] *= needs > 0 ? std::clamp(has / needs, 0.5, 1.5) : 1.5;
      ++n;
    }
    if (worst <= over * most) return cuts;
  }
  return {};
}

/// Pieces from the last position back, each as long as its owner has room and time for: what comes before a piece is
/// what its owner receives.
std::optional<Cuts> Attempt::cut_back(int component, std::span<const Rank> owners) const {
  const Component& whole = parcels_.component(component);
  const std::int64_t grain = grain_of(whole.length());
  const auto needs = [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t count = end - begin;
    const auto tile = [&](std::int64_t from, std::int64_t keys) {
      return costs_.tile(whole.pairs(begin, count, from, keys), static_cast<double>(count), static_cast<double>(keys));
    };
    return tile(begin, count) + tile(0, begin) - parcels_.light * static_cast<double>(count);
  };
  Cuts cuts;
  std::int64_t end = whole.length();
  for (const Rank rank : owners) {
    // In grains: too far back, and as far as it may be.
    std::int64_t before = std::max<std::int64_t>(0, end - static_cast<std::int64_t>(room(rank))) / grain - 1;
    std::int64_t begin = (end + grain - 1) / grain;
    while (begin - before > 1) {
      const std::int64_t middle = (before + begin) / 2;
      const bool possible =
          end - middle * grain <= static_cast<std::int64_t>(room(rank)) && needs(middle * grain, end) <= slack(rank);
      (possible ? begin : before) = middle;
    }
    if (begin * grain >= end) continue;
    cuts.ends.insert(cuts.ends.begin(), end);
    cuts.ranks.insert(cuts.ranks.begin(), rank);
    end = begin * grain;
    if (end == 0) break;
  }
  if (end > 0) return {};
  count(component, cuts);
  for (std::size_t i = 0; i < cuts.ranks.size(); ++i) {
    const double more = cuts.seconds[i] - parcels_.light * static_cast<double>(cuts.count(i));
    if (more > (1 + over) * slack(cuts.ranks[i])) return {};
  }
  return cuts;
}

/// Seconds and bytes of pieces, each against the pieces that it sees.
void Attempt::count(int component, Cuts& cuts) const {
  const Component& whole = parcels_.component(component);
  const std::size_t pieces = cuts.ranks.size();
  const double bytes_a_token = (costs_.bytes.key_value + costs_.bytes.dkey_value) * parcels_.copies;
  std::vector<double> in(pieces), out(pieces);
  cuts.seconds.assign(pieces, 0);
  for (std::size_t i = 0; i < pieces; ++i) {
    const std::int64_t n = cuts.count(i), a = cuts.ends[i] - n;
    for (std::size_t j = 0; j < pieces; ++j) {
      const std::int64_t m = cuts.count(j), b = cuts.ends[j] - m;
      const double pairs = whole.pairs(a, n, b, m);
      if (pairs <= 0) continue;
      cuts.seconds[i] += costs_.tile(pairs, static_cast<double>(n), static_cast<double>(m));
      if (cuts.ranks[i] == cuts.ranks[j]) continue;
      in[i] += static_cast<double>(m);
      out[j] += static_cast<double>(m);
    }
  }
  for (std::size_t i = 0; i < pieces; ++i) {
    cuts.seconds[i] += costs_.merge(out[i] * costs_.bytes.dkey_value);
    in[i] *= bytes_a_token;
    out[i] *= bytes_a_token;
  }
  cuts.in = std::move(in);
  cuts.out = std::move(out);
}

bool Attempt::is_near(const Cuts& cuts) const {
  const int node = cuts.ranks.front() / costs_.domain();
  return std::all_of(cuts.ranks.begin(), cuts.ranks.end(), [&](Rank rank) { return rank / costs_.domain() == node; });
}

/// Into pieces as large as the ranks have room for, in the domain that just holds it, otherwise in those with most
/// room.
std::optional<Cuts> Attempt::pour(int component) const {
  const std::int64_t length = parcels_.component(component).length();
  std::vector<std::pair<std::int64_t, std::vector<Rank>>> by_room;
  for (std::vector<Rank>& domain : domains()) {
    std::int64_t rooms = 0;
    for (const Rank rank : domain) rooms += std::max<std::int64_t>(0, static_cast<std::int64_t>(room(rank)));
    by_room.emplace_back(rooms, std::move(domain));
  }
  std::stable_sort(by_room.begin(), by_room.end(), [&](const auto& a, const auto& b) {
    const bool a_holds = a.first >= length, b_holds = b.first >= length;
    if (a_holds != b_holds) return a_holds;
    return a_holds ? a.first < b.first : a.first > b.first;
  });
  Cuts cuts;
  std::int64_t begin = 0;
  for (auto& [rooms, domain] : by_room) {
    std::stable_sort(domain.begin(), domain.end(), [&](Rank a, Rank b) { return room(a) > room(b); });
    for (const Rank rank : domain) {
      const std::int64_t count = std::min(static_cast<std::int64_t>(room(rank)), length - begin);
      if (count <= 0) continue;
      begin += count;
      cuts.ends.push_back(begin);
      cuts.ranks.push_back(rank);
    }
    if (begin == length) break;
  }
  if (begin < length) return {};
  count(component, cuts);
  const bool near = is_near(cuts);
  for (std::size_t i = 0; i < cuts.ranks.size(); ++i) {
    const Rank rank = cuts.ranks[i];
    if (load_.seconds[index(rank)] + cuts.seconds[i] > budget(rank)) return {};
    if (near && !link_has(rank, cuts.in[i], cuts.out[i])) return {};
    const double far = load_.far[index(rank)] + std::max(cuts.in[i], cuts.out[i]);
    if (!near && costs_.far_seconds(far, far * costs_.node_size) > limit_s_) return {};
  }
  return cuts;
}

}  // namespace distattn
