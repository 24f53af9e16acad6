#include "cli/run/timing.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/run/all_gather.hpp"
#include "distattn/index.hpp"

namespace distattn::cli {
namespace {

/// Of one rank's call, on its node's clock: those of two nodes are never compared.
struct Interval {
  double begin_s = 0, end_s = 0;
  Rank node = 0;  ///< its first rank
};

/// [call][rank].
using Intervals = std::vector<std::vector<Interval>>;

double seconds_of(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

Intervals gather_intervals(World& world, const std::vector<RankCalls>& here) {
  const Rank node = world.first() - world.local_rank();
  std::vector<Interval> mine;
  for (const RankCalls& rank : here) {
    for (const Call& call : rank) mine.push_back({seconds_of(call.begin), seconds_of(call.end), node});
  }
  const std::vector<Interval> all = all_gather<Interval>(world, mine);
  const auto ranks = index(world.size()), calls = here.front().size();
  DISTATTN_EXPECT(all.size() == ranks * calls);
  Intervals intervals(calls, std::vector<Interval>(ranks));
  for (std::size_t i = 0; i < all.size(); ++i) intervals[i % calls][i / calls] = all[i];
  return intervals;
}

/// From when the first rank of a node began to when its last one ended, by the node's first rank.
std::map<Rank, Interval> by_node(const std::vector<Interval>& ranks) {
  std::map<Rank, Interval> nodes;
  for (const Interval& rank : ranks) {
    Interval& node = nodes.emplace(rank.node, rank).first->second;
    node.begin_s = std::min(node.begin_s, rank.begin_s);
    node.end_s = std::max(node.end_s, rank.end_s);
  }
  return nodes;
}

/// Seconds of every call, of the node that takes longest: from when its ranks had ended the last call, or the first of
/// them began, to the last end. All nodes begin a call together, behind a barrier.
std::vector<double> call_seconds(const Intervals& calls) {
  std::vector<double> seconds;
  std::map<Rank, Interval> previous;
  for (const std::vector<Interval>& ranks : calls) {
    std::map<Rank, Interval> nodes = by_node(ranks);
    double longest_s = 0;
    for (const auto& [node, interval] : nodes) {
      const auto before = previous.find(node);
      const double begin_s =
          before == previous.end() ? interval.begin_s : std::max(interval.begin_s, before->second.end_s);
      longest_s = std::max(longest_s, interval.end_s - begin_s);
    }
    seconds.push_back(longest_s);
    previous = std::move(nodes);
  }
  return seconds;
}

/// Below which a share of the sorted values lies: straight between neighbours.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

/// But for first_s and the timeline.
Timing summary(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  Timing timing;
  timing.median_s = quantile(seconds, 0.5);
  timing.least_s = seconds.front();
  timing.p10_s = quantile(seconds, 0.1);
  timing.p90_s = quantile(seconds, 0.9);
  timing.runs_s = std::move(seconds);
  return timing;
}

/// All ranks' steps in one call, which began on all nodes at once.
Timeline timeline_of(World& world, const std::vector<RankCalls>& here, std::size_t call,
                     const std::vector<Interval>& intervals) {
  std::vector<Span> spans;
  std::vector<double> seconds, begins_s;
  for (const RankCalls& rank : here) {
    spans.insert(spans.end(), rank[call].timeline.spans.begin(), rank[call].timeline.spans.end());
    seconds.push_back(rank[call].timeline.seconds);
  }
  spans = all_gather<Span>(world, spans);
  seconds = all_gather<double>(world, seconds);
  std::vector<Timeline> timelines(seconds.size());
  for (const Span& span : spans) timelines[index(span.rank)].spans.push_back(span);
  const std::map<Rank, Interval> nodes = by_node(intervals);
  for (std::size_t rank = 0; rank < seconds.size(); ++rank) {
    timelines[rank].seconds = seconds[rank];
    begins_s.push_back(intervals[rank].begin_s - nodes.at(intervals[rank].node).begin_s);
  }
  return join(timelines, begins_s);
}

}  // namespace

std::vector<Timing> timings_of(World& world, const std::vector<RankCalls>& here, int passes, int warmups) {
  const Intervals intervals = gather_intervals(world, here);
  const std::vector<double> all = call_seconds(intervals);
  const auto stride = index(passes);
  std::vector<Timing> timings;
  for (std::size_t first = 0; first < stride; ++first) {
    std::vector<double> seconds;
    for (std::size_t i = first; i < all.size(); i += stride) seconds.push_back(all[i]);
    const auto measured = seconds.begin() + warmups;
    Timing timing = summary({measured, seconds.end()});
    timing.first_s = seconds.front();
    const auto nearest = std::min_element(measured, seconds.end(), [&](double a, double b) {
      return std::abs(a - timing.median_s) < std::abs(b - timing.median_s);
    });
    const auto call = first + stride * index(nearest - seconds.begin());
    timing.timeline = timeline_of(world, here, call, intervals[call]);
    timings.push_back(std::move(timing));
  }
  return timings;
}

Timing merge(std::vector<Timing> timings) {
  std::vector<double> seconds;
  for (const Timing& timing : timings) seconds.insert(seconds.end(), timing.runs_s.begin(), timing.runs_s.end());
  Timing merged = summary(std::move(seconds));
  merged.first_s = timings.front().first_s;
  const auto nearest = std::min_element(timings.begin(), timings.end(), [&](const Timing& a, const Timing& b) {
    return std::abs(a.median_s - merged.median_s) < std::abs(b.median_s - merged.median_s);
  });
  merged.timeline = std::move(nearest->timeline);
  return merged;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

}  // namespace distattn::cli
