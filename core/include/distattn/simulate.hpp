#pragma once
/// Time on a machine that was described, not built.

#include <cstdint>
#include <span>
#include <vector>

#include "distattn/layout.hpp"
#include "distattn/schedule.hpp"
#include "distattn/timeline.hpp"

namespace distattn {

/// A rank program reduced to what takes time: kept where programs are dropped.
struct ProgramSketch {
  struct Message {
    Rank peer = 0;
    std::int64_t bytes = 0;
  };
  struct SketchStep {
    int number = 0, due = 0;
    Lane lane = Lane::compute;
    std::int64_t pairs = 0;           ///< visible pairs × query heads of its tiles
    std::vector<Message> sends, receives;
    std::vector<StepId> after;
  };
  Rank rank = 0;
  std::vector<SketchStep> steps;
};
ProgramSketch sketch(const Outline& outline, const Tiles& tiles, Rank rank, const RankProgram& program);

/// Share of rank-time without compute on infinitely fast links, work counted in visible pairs: a rank's step begins
/// when its last has ended, and ends when its tiles have and when what is due has been sent (spec §6).
double ideal_idle(std::span<const ProgramSketch> ranks);

}  // namespace distattn
