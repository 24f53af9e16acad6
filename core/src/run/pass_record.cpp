#include "core/src/run/pass_record.hpp"

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "distattn/error.hpp"

namespace distattn {

void PassRecord::begin(Clock::time_point now) {
  start = now;
  loaded = stored = Event();
  std::fill(events.begin(), events.end(), Event());
}

bool PassRecord::done() const {
  return stored.done() && loaded.done() &&
         std::all_of(events.begin(), events.end(), [](const Event& event) { return event.done(); });
}

void PassRecord::await_steps() const {
  for (const Event& event : events) event.wait();
}

/// A step that was submitted before what it waits for had ended, began when that had.
void PassRecord::measure(const RankProgram& program, Rank rank, Timeline& timeline) {
  const auto seconds = [&](Clock::time_point at) { return std::chrono::duration<double>(at - start).count(); };
  timeline.spans.clear();
  const Clock::time_point first = loaded.state() != nullptr ? loaded.state()->ended_at() : start;
  std::array<Clock::time_point, lane_count> lane_free{first, first, first};
  for (std::size_t number = 0; number < program.steps.size(); ++number) {
    const Step& step = program.steps[number];
    if (events[number].state() != nullptr) ended[number] = events[number].state()->ended_at();
    Clock::time_point began = std::max(started[number], lane_free[index(step.lane)]);
    for (const StepId id : step.after) began = std::max(began, ended[index(id)]);
    began = std::min(began, ended[number]);
    lane_free[index(step.lane)] = ended[number];
    timeline.spans.push_back(
        {rank, step.lane, static_cast<StepId>(number), step.number, seconds(began), seconds(ended[number])});
  }
  std::sort(timeline.spans.begin(), timeline.spans.end(),
            [](const Span& a, const Span& b) { return a.start_s < b.start_s; });
  timeline.seconds = seconds(Clock::now());
}

void await_what_precedes(const Event& event, Rank rank) {
  try {
    event.wait();
  } catch (...) {
    const Error error = as_error(std::current_exception());
    throw Error(error.kind(),
                fmt::format("rank {}: what a pass was to begin after has failed: {}", rank, error.what()));
  }
}

}  // namespace distattn
