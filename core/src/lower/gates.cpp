#include "core/src/lower/gates.hpp"

#include <algorithm>
#include <queue>

#include "distattn/index.hpp"

namespace distattn {

void spread_gates(std::span<Departure> departures, std::vector<std::int64_t>& sent) {
  std::vector<std::vector<Departure*>> through(sent.size());  // by gate
  for (Departure& departure : departures) {
    departure.gate = departure.candidates.front();
    through[index(departure.gate)].push_back(&departure);
    sent[index(departure.gate)] += departure.bytes;
  }
  const auto load = [&](Rank rank) -> std::int64_t& { return sent[index(rank)]; };

  // Each pop either moves the departure that it looks at or settles it for good, so the search ends.
  std::priority_queue<std::pair<std::int64_t, Rank>> busiest;
  for (Rank rank = 0; rank < static_cast<Rank>(sent.size()); ++rank) busiest.push({load(rank), rank});
  while (!busiest.empty()) {
    const auto [bytes, rank] = busiest.top();
    busiest.pop();
    auto& mine = through[index(rank)];
    if (bytes != load(rank) || mine.empty()) continue;
    Departure& departure = *mine.back();
    mine.pop_back();
    const Rank other = *std::min_element(departure.candidates.begin(), departure.candidates.end(),
                                         [&](Rank a, Rank b) { return load(a) < load(b); });
    if (load(other) + departure.bytes < load(rank)) {
      load(rank) -= departure.bytes;
      load(other) += departure.bytes;
      departure.gate = other;
      through[index(other)].push_back(&departure);
      busiest.push({load(other), other});
    }
    busiest.push({load(rank), rank});
  }
}

}  // namespace distattn
