#pragma once
/// Timelines as pictures and traces: prediction and measurement by the same code.

#include <span>
#include <string>
#include <vector>

#include "distattn/schedule.hpp"
#include "distattn/timeline.hpp"

namespace distattn {

/// One timeline with its title, "predicted" or "measured". The timeline must outlive the panel.
struct Panel {
  std::string title;
  const Timeline* timeline = nullptr;
};

/// One pass and its timelines, whose spans are all of `schedule`, which must outlive the drawing.
struct Drawing {
  const Schedule* schedule = nullptr;
  std::vector<Panel> panels;
};

/// One page of SVG. Drawings are below each other; the panels of one share a scale of time. Each rank has a row with
/// its compute, near and far lanes. Tiles have the colour of the rank that owns their keys, and, if another rank owns
/// their queries, an edge in that rank's colour; the rest of a compute lane is idle time. Tooltips describe every
/// element, and list the messages of an exchange.
std::string to_svg(std::span<const Drawing> drawings);

/// The same as trace events for Perfetto and chrome://tracing: each rank of a panel is a process, each lane a thread,
/// each message an arrow.
std::string to_trace(std::span<const Drawing> drawings);

}  // namespace distattn
