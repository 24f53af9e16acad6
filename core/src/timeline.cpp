#include "distattn/timeline.hpp"

#include <algorithm>

#include "distattn/error.hpp"

namespace distattn {

double Timeline::idle_share(int ranks) const {
  double busy_s = 0;
  for (const Span& span : spans) {
    if (span.lane == Lane::compute) busy_s += span.end_s - span.start_s;
  }
  return seconds > 0 ? 1 - busy_s / (ranks * seconds) : 0;
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
