#pragma once
/// What an executor knows of one pass while it runs.

#include <cstddef>
#include <vector>

#include "distattn/event.hpp"
#include "distattn/schedule.hpp"
#include "distattn/timeline.hpp"

namespace distattn {

struct PassRecord {
  using Clock = Event::Clock;

  explicit PassRecord(std::size_t steps) : events(steps), started(steps), ended(steps) {}

  /// As for a new pass, in the same memory.
  void begin(Clock::time_point now);
  bool done() const;
  /// In their order, so that the first that does not end is one that nothing before it holds up.
  void await_steps() const;
  /// Into `timeline`, which has room: when each step ran. Of a pass that has ended well.
  void measure(const RankProgram& program, Rank rank, Timeline& timeline);

  Clock::time_point start{};
  Event loaded, stored;  // the work with the caller's tensors
  // By step; written by the thread that runs it, read by others once it is submitted.
  std::vector<Event> events;
  std::vector<Clock::time_point> started, ended;
};

/// Waits for what a pass is to begin after. A failure of that is one of the pass.
void await_what_precedes(const Event& event, Rank rank);

}  // namespace distattn
