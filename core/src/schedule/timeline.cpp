#include "distattn/timeline.hpp"

#include <algorithm>
#include <tuple>
#include <vector>

#include "distattn/error.hpp"

namespace distattn {
namespace {

/// A rank's lanes that are busy from a moment on: compute, or one more or one less exchange.
struct Change {
  Rank rank;
  double time_s;
  int computing, exchanging;
};

}  // namespace

double Timeline::idle_share(int ranks) const {
  double busy_s = 0;
  for (const Span& span : spans) {
    if (span.lane == Lane::compute) busy_s += span.end_s - span.start_s;
  }
  return seconds > 0 ? 1 - busy_s / (ranks * seconds) : 0;
}

double Timeline::exposed_s(int ranks) const {
  std::vector<Change> changes;
  for (const Span& span : spans) {
    const int computing = span.lane == Lane::compute ? 1 : 0;
    changes.push_back({span.rank, span.start_s, computing, 1 - computing});
    changes.push_back({span.rank, span.end_s, -computing, computing - 1});
  }
  std::sort(changes.begin(), changes.end(),
            [](const Change& a, const Change& b) { return std::tie(a.rank, a.time_s) < std::tie(b.rank, b.time_s); });
  double exposed_s = 0, since_s = 0;
  int computing = 0, exchanging = 0;
  for (const Change& change : changes) {
    if (exchanging > 0 && computing == 0) exposed_s += change.time_s - since_s;
    computing += change.computing;
    exchanging += change.exchanging;
    since_s = change.time_s;
  }
  return exposed_s / ranks;
}

Timeline join(std::span<const Timeline> ranks, std::span<const double> begins_s) {
  DISTATTN_EXPECT(!ranks.empty() && ranks.size() == begins_s.size());
  const double first_s = *std::min_element(begins_s.begin(), begins_s.end());
  Timeline all;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const double shift_s = begins_s[r] - first_s;
    for (Span span : ranks[r].spans) {
      span.start_s += shift_s;
      span.end_s += shift_s;
      all.spans.push_back(span);
    }
    all.seconds = std::max(all.seconds, ranks[r].seconds + shift_s);
  }
  return all;
}

}  // namespace distattn
