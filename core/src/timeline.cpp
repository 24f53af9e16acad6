#include "distattn/timeline.hpp"

namespace distattn {

double Timeline::idle_share(int ranks) const {
  double busy_s = 0;
  for (const Span& span : spans) {
    if (span.lane == Lane::compute) busy_s += span.end_s - span.start_s;
  }
  return seconds > 0 ? 1 - busy_s / (ranks * seconds) : 0;
}

}  // namespace distattn
