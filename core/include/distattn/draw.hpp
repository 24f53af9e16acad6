#pragma once
/// Timelines as pictures and traces: prediction and measurement by the same code.

#include <span>
#include <string>

#include "distattn/schedule.hpp"
#include "distattn/timeline.hpp"

namespace distattn {

/// One timeline of a picture: "predicted" or "measured". The timeline must outlive it.
struct Panel {
  std::string title;
  const Timeline* timeline = nullptr;
};

/// A page of SVG: panels one above the other on one scale of time; in each a row a rank, with its compute, near and
/// far lanes. Tiles have the colour of the rank that owns their keys, under an edge in the colour of the rank that
/// owns their queries where it is another one; what is left of a compute lane is idle. Pointing at an exchange shows
/// its messages, pointing at anything says what it is. Every span must be of `schedule`.
std::string to_svg(const Schedule& schedule, std::span<const Panel> panels);

/// The same as trace events for Perfetto and chrome://tracing: a process a rank and panel, a thread a lane, an arrow a
/// message.
std::string to_trace(const Schedule& schedule, std::span<const Panel> panels);

}  // namespace distattn
