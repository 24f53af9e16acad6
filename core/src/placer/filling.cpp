#include <algorithm>
#include <limits>

#include "core/src/placer/attempt.hpp"

namespace distattn {
namespace {

constexpr double longest_run = 1.0 / 16;  // of a rank's tokens
constexpr int most_swaps = 400;
constexpr double worth_it = 0.9999;

/// Short components that lie side by side.
struct RunOfComponents {
  std::int64_t start = 0, count = 0;
  double seconds = 0;
  int first = 0, end = 0;  // components
};

}  // namespace

/// Runs of what is not packed go to the rank with most room, longest first; what fits nowhere is taken apart.
bool Attempt::fill(const std::vector<bool>& packed) {
  std::vector<RunOfComponents> runs;
  for (int c = 0; c < static_cast<int>(packed.size()); ++c) {
    if (packed[index(c)]) continue;
    const Component& component = parcels_.component(c);
    const bool joins = !runs.empty() && runs.back().end == c &&
                       static_cast<double>(runs.back().count + component.length()) <= longest_run * parcels_.share;
    if (!joins) runs.push_back({component.start(), 0, 0, c, c});
    runs.back().count += component.length();
    runs.back().seconds += parcels_.work_of(c);
    runs.back().end = c + 1;
  }
  std::stable_sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
  for (const RunOfComponents& run : runs) {
    // Below its share first: what is beyond it counts no more than one token.
    const auto wish = [&](Rank rank) {
      return std::min(room(rank), parcels_.share_of(rank) - load_.tokens[index(rank)] + 1);
    };
    Rank best = 0;
    for (Rank rank = 1; rank < ranks(); ++rank) best = wish(rank) > wish(best) ? rank : best;
    if (room(best) < static_cast<double>(run.count)) {
      if (!fill_apart(run.first, run.end)) return false;
      continue;
    }
    packing_.pieces.push_back({run.start, run.count, best, run.first, Piece::Kind::whole, run.seconds});
    load_.tokens[index(best)] += static_cast<double>(run.count);
    load_.seconds[index(best)] += run.seconds;
  }
  return true;
}

/// The number of the largest mesh that each rank is in, or -1.
std::vector<int> Attempt::largest_meshes() const {
  std::vector<int> largest(index(ranks()), -1);
  for (std::size_t m = 0; m < packing_.meshes.size(); ++m) {
    for (const Rank rank : packing_.meshes[m].second.ranks) {
      const int other = largest[index(rank)];
      if (other < 0 || packing_.meshes[index(other)].second.ranks.size() < packing_.meshes[m].second.ranks.size())
        largest[index(rank)] = static_cast<int>(m);
    }
  }
  return largest;
}

bool Attempt::fill_apart(int first, int end) {
  const bool of_a_mesh = parcels_.wish.sharers == Sharers::of_a_mesh;
  const std::vector<int> meshes = of_a_mesh ? largest_meshes() : std::vector<int>(index(ranks()), -1);
  for (int c = first; c < end; ++c) {
    const Component& component = parcels_.component(c);
    Cuts cuts;
    for (std::int64_t done = 0; done < component.length();) {
      Rank best = 0;
      const auto wish = [&](Rank rank) {
        const bool together = cuts.ranks.empty() || meshes[index(rank)] == meshes[index(cuts.ranks.front())];
        return std::pair(together && room(rank) >= 1, room(rank));
      };
      for (Rank rank = 1; rank < ranks(); ++rank) best = wish(rank) > wish(best) ? rank : best;
      const std::int64_t count = std::min(static_cast<std::int64_t>(room(best)), component.length() - done);
      if (count <= 0) return false;
      done += count;
      cuts.ends.push_back(done);
      cuts.ranks.push_back(best);
      load_.tokens[index(best)] += static_cast<double>(count);  // so that the next part goes elsewhere
    }
    for (std::size_t i = 0; i < cuts.ranks.size(); ++i)
      load_.tokens[index(cuts.ranks[i])] -= static_cast<double>(cuts.count(i));
    count(c, cuts);
    // Bytes of short components do not count.
    cuts.in.assign(cuts.ranks.size(), 0);
    cuts.out.assign(cuts.ranks.size(), 0);
    add_pieces(c, cuts, false);
  }
  return true;
}

/// Moves and swaps whole components between the busiest rank and others while it takes too long.
void Attempt::even_out() {
  std::vector<Piece*> whole;
  for (Piece& piece : packing_.pieces) {
    if (piece.kind == Piece::Kind::whole) whole.push_back(&piece);
  }
  const auto tokens = [](const Piece& piece) { return static_cast<double>(piece.count); };
  for (int swap = 0; swap < most_swaps; ++swap) {
    const auto takes = [&](Rank rank) { return load_.seconds[index(rank)] / costs_.speed(rank); };
    Rank busiest = 0;
    for (Rank rank = 1; rank < ranks(); ++rank) busiest = takes(rank) > takes(busiest) ? rank : busiest;
    if (takes(busiest) <= limit_s_) return;
    double best = worth_it * takes(busiest);
    Piece* moved = nullptr;
    Piece* exchanged = nullptr;
    Rank target = busiest;
    const auto consider = [&](Piece* mine, Piece* other, Rank rank) {
      const double back_s = other != nullptr ? other->seconds : 0, back_tokens = other != nullptr ? tokens(*other) : 0;
      const double here = (load_.seconds[index(busiest)] - mine->seconds + back_s) / costs_.speed(busiest);
      const double there = (load_.seconds[index(rank)] + mine->seconds - back_s) / costs_.speed(rank);
      if (std::max(here, there) >= best || room(rank) < tokens(*mine) - back_tokens ||
          room(busiest) < back_tokens - tokens(*mine))
        return;
      best = std::max(here, there);
      moved = mine;
      exchanged = other;
      target = rank;
    };
    for (Piece* mine : whole) {
      if (mine->owner != busiest) continue;
      for (Piece* other : whole) {
        if (other->owner != busiest) consider(mine, other, other->owner);
      }
      for (Rank rank = 0; rank < ranks(); ++rank) {
        if (rank != busiest) consider(mine, nullptr, rank);
      }
    }
    if (moved == nullptr) return;
    const auto give = [&](Piece& piece, Rank rank) {
      load_.seconds[index(piece.owner)] -= piece.seconds;
      load_.tokens[index(piece.owner)] -= tokens(piece);
      load_.seconds[index(rank)] += piece.seconds;
      load_.tokens[index(rank)] += tokens(piece);
      piece.owner = rank;
    };
    give(*moved, target);
    if (exchanged != nullptr) give(*exchanged, busiest);
  }
}

}  // namespace distattn
