#include "cli/tools/page/timeline_data.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

namespace distattn {
namespace {

using Json = nlohmann::ordered_json;

/// Gaps that no screen shows.
constexpr std::int64_t least_gap = page_ticks / 800;

struct Ticks {
  std::int64_t begin = 0, end = 0;
};

Ticks ticks_of(const Span& span, double seconds) {
  const auto tick = [&](double s) { return seconds > 0 ? std::llround(s / seconds * page_ticks) : 0; };
  return {tick(span.start_s), tick(span.end_s)};
}

using Lanes = std::array<std::vector<const Span*>, lane_count>;  // a span or null for each step

std::vector<Lanes> lanes_of(const Schedule& schedule, const Timeline& timeline) {
  std::vector<std::vector<const Span*>> by_step;
  for (const RankProgram& program : schedule.ranks) by_step.emplace_back(program.steps.size(), nullptr);
  for (const Span& span : timeline.spans) by_step[index(span.rank)][index(span.step)] = &span;
  std::vector<Lanes> ranks(schedule.ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto& steps = schedule.ranks[r].steps;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      ranks[r][index(steps[s].lane)].push_back(by_step[r][s]);
    }
  }
  return ranks;
}

Json each_span(const std::vector<const Span*>& lane, double seconds) {
  Json list = Json::array();
  std::int64_t last = 0;
  for (const Span* span : lane) {
    if (span == nullptr) {
      list.push_back(-1);
      list.push_back(-1);
      continue;
    }
    // Exchanges of one lane may be in progress together: what begins before the last one's end is drawn from there.
    const Ticks ticks = ticks_of(*span, seconds);
    const std::int64_t begin = std::max(ticks.begin, last), end = std::max(ticks.end, begin);
    list.push_back(begin - last);
    list.push_back(end - begin);
    last = end;
  }
  return list;
}

Json joined_spans(const std::vector<const Span*>& lane, double seconds) {
  std::vector<Ticks> joined;
  for (const Span* span : lane) {
    if (span == nullptr) continue;
    const Ticks ticks = ticks_of(*span, seconds);
    if (!joined.empty() && ticks.begin - joined.back().end < least_gap) {
      joined.back().end = std::max(joined.back().end, ticks.end);
    } else {
      joined.push_back(ticks);
    }
  }
  Json list = Json::array();
  std::int64_t last = 0;
  for (const Ticks& ticks : joined) {
    list.push_back(ticks.begin - last);
    list.push_back(ticks.end - ticks.begin);
    last = ticks.end;
  }
  return list;
}

}  // namespace

double shown_digits(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double unit = std::pow(10.0, 8 - std::floor(std::log10(std::abs(value))));
  return std::round(value * unit) / unit;
}

Json timeline_data(const Schedule& schedule, const Panel& panel, bool joined) {
  const Timeline& timeline = *panel.timeline;
  Json busy = Json::array(), spans = Json::array();
  for (const Lanes& lanes : lanes_of(schedule, timeline)) {
    double seconds = 0;
    for (const Span* span : lanes[index(Lane::compute)]) {
      if (span != nullptr) seconds += span->end_s - span->start_s;
    }
    const double share = timeline.seconds > 0 ? seconds / timeline.seconds : 0;
    busy.push_back(std::round(share * page_ticks) / page_ticks);
    Json rank = Json::array();
    for (const auto& lane : lanes) {
      rank.push_back(joined ? joined_spans(lane, timeline.seconds) : each_span(lane, timeline.seconds));
    }
    spans.push_back(std::move(rank));
  }
  return {{"title", panel.title},
          {"seconds", shown_digits(timeline.seconds)},
          {"exposed_s", shown_digits(timeline.exposed_s(static_cast<int>(schedule.ranks.size())))},
          {"busy", std::move(busy)},
          {"spans", std::move(spans)}};
}

}  // namespace distattn
