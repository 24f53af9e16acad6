#pragma once
/// What orders the steps of a rank's three lanes: a step follows the earlier steps whose slots it touches.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "distattn/access.hpp"

namespace distattn {

/// How far each lane has come, by index of its last step, −1: not begun.
using LaneClock = std::array<std::int32_t, lane_count>;
inline constexpr LaneClock not_begun{-1, -1, -1};

/// The last accesses of every slot, by lane, as step indices.
class SlotHistory {
 public:
  explicit SlotHistory(std::size_t slots) : last_(slots) {}

  /// Calls need(step) for every earlier step that an access of `slot` must follow.
  template <class Need>
  void for_each_conflict(int slot, Access access, Need need) const {
    const Last& last = last_[index(slot)];
    if (last.write >= 0) need(last.write);
    if (access == Access::write) {
      for (const std::int32_t read : last.reads) {
        if (read >= 0) need(read);
      }
    }
  }
  void record(int slot, Access access, Lane lane, std::int32_t step) {
    Last& last = last_[index(slot)];
    if (access == Access::write)
      last = {step, not_begun};
    else
      last.reads[index(lane)] = step;
  }

 private:
  struct Last {
    std::int32_t write = -1;
    LaneClock reads = not_begun;
  };
  std::vector<Last> last_;
};

/// For each step the progress of all lanes that its start implies: by its lane's order and by `after`.
class LaneClocks {
 public:
  /// Clock of a step about to start in `lane`, without its `after`.
  LaneClock begin(Lane lane) const { return at_end_of_lane_[index(lane)]; }
  /// Adds what the end of `step` implies.
  void join(LaneClock& clock, std::int32_t step) const {
    const LaneClock& other = ended_[index(step)];
    for (std::size_t lane = 0; lane < lane_count; ++lane) clock[lane] = std::max(clock[lane], other[lane]);
  }
  /// Appends the next step, which starts at `clock`.
  void append(Lane lane, LaneClock clock) {
    clock[index(lane)] = static_cast<std::int32_t>(ended_.size());
    at_end_of_lane_[index(lane)] = clock;
    ended_.push_back(clock);
  }
  /// Appends `step` with the `after` that it has, and returns its clock when it starts.
  LaneClock append(const Step& step) {
    LaneClock clock = begin(step.lane);
    for (const StepId id : step.after) join(clock, static_cast<std::int32_t>(id));
    append(step.lane, clock);
    return clock;
  }

 private:
  std::vector<LaneClock> ended_;  // by step: what its end implies
  std::array<LaneClock, lane_count> at_end_of_lane_{not_begun, not_begun, not_begun};
};

}  // namespace distattn
