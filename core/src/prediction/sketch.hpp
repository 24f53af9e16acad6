#pragma once
/// Sketches of many programs on one layout.

#include "core/src/prediction/seen_tiles.hpp"
#include "distattn/simulate.hpp"

namespace distattn {

/// As the public sketch(), with lookups that the caller may have made for several schedules: head groups make no
/// difference to them. What cores use in place takes long to find: without `on_cores` nothing is counted as used so.
ProgramSketch sketch(const Outline& outline, const SeenTiles& seen, Rank rank, const RankProgram& program,
                     const Latents* latents = nullptr, bool on_cores = true);

}  // namespace distattn
