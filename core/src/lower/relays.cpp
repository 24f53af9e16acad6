#include "core/src/lower/relays.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

namespace distattn {
namespace {

/// Values with fewer stops than this many times the mean come from their owners, as do those of owners that send less
/// than this many times the mean: trees cost memory, and messages wait for others. In a causal ring the first keys have
/// twice the mean.
constexpr double many_more_stops = 4, more_bytes = 1.5;

/// By when it could begin to send, in bytes, then by when it came to the tree.
struct Sender {
  std::int64_t ready;
  std::size_t number;
  Rank rank;
  friend bool operator>(const Sender& a, const Sender& b) {
    return std::tie(a.ready, a.number) > std::tie(b.ready, b.number);
  }
};

}  // namespace

void Relays::note(Rank owner, std::size_t stops, std::int64_t bytes) {
  sent_[index(owner)] += static_cast<std::int64_t>(stops) * bytes;
  bytes_ += bytes;
  bytes_sent_ += static_cast<std::int64_t>(stops) * bytes;
}

bool Relays::grows(Rank owner, std::size_t stops) const {
  const auto bytes = [](std::int64_t count) { return static_cast<double>(count); };
  if (static_cast<double>(stops) * bytes(bytes_) <= many_more_stops * bytes(bytes_sent_)) return false;
  const auto senders = std::count_if(sent_.begin(), sent_.end(), [](std::int64_t sent) { return sent > 0; });
  return bytes(sent_[index(owner)]) * static_cast<double>(senders) > more_bytes * bytes(bytes_sent_);
}

std::vector<Rank> Relays::senders(Rank owner, std::int64_t bytes, std::span<Stop> stops) {
  if (!grows(owner, stops.size())) return std::vector<Rank>(stops.size(), owner);
  std::stable_sort(stops.begin(), stops.end(), [](const Stop& a, const Stop& b) {
    return std::tie(a.sent, a.has, a.rank) < std::tie(b.sent, b.has, b.rank);
  });
  std::priority_queue<Sender, std::vector<Sender>, std::greater<>> ready;
  ready.push({busy_[index(owner)], 0, owner});
  std::vector<std::int64_t> arrived(stops.size());
  std::vector<std::size_t> waiting;  // stops that have been sent it and do not have it yet
  std::vector<Rank> chosen;
  for (std::size_t s = 0; s < stops.size(); ++s) {
    std::erase_if(waiting, [&](std::size_t earlier) {
      const bool has_it = stops[earlier].has < stops[s].sent;
      const Rank rank = stops[earlier].rank;
      if (has_it) ready.push({std::max(arrived[earlier], busy_[index(rank)]), earlier + 1, rank});
      return has_it;
    });
    Sender sender = ready.top();
    ready.pop();
    sender.ready += bytes;
    arrived[s] = busy_[index(sender.rank)] = sender.ready;
    chosen.push_back(sender.rank);
    ready.push(sender);
    waiting.push_back(s);
  }
  return chosen;
}

}  // namespace distattn
