#pragma once
/// Timelines as pictures and traces: prediction and measurement by the same code.

#include <span>
#include <string>
#include <vector>

#include "distattn/schedule.hpp"
#include "distattn/timeline.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// One timeline: "predicted" or "measured". It must outlive the panel.
struct Panel {
  std::string title;
  const Timeline* timeline = nullptr;
};

/// One pass and its timelines, whose spans are all of `schedule`, which must outlive the drawing.
struct Drawing {
  const Schedule* schedule = nullptr;
  std::vector<Panel> panels;
};

/// A page of SVG: drawings one below the other, each with its panels on one scale of time; in a panel a row a rank,
/// with its compute, near and far lanes. Tiles have the colour of the rank that owns their keys, under an edge in the
/// colour of the rank that owns their queries where it is another one; what is left of a compute lane is idle. Pointing
/// at an exchange shows its messages, pointing at anything says what it is.
std::string to_svg(std::span<const Drawing> drawings);

/// The same as trace events for Perfetto and chrome://tracing: a process a rank and panel, a thread a lane, an arrow a
/// message.
std::string to_trace(std::span<const Drawing> drawings);

}  // namespace distattn
#pragma GCC visibility pop
