#pragma once
/// Timelines for the page.

#include <nlohmann/json.hpp>

#include "cli/tools/draw.hpp"

namespace distattn {

/// Times are in units of `seconds` / this.
inline constexpr int page_ticks = 100'000;

/// As many digits as matter: the last ones depend on the compiler.
double shown_digits(double value);

/// {"title", "seconds", "exposed_s", "busy": share a rank, "spans": a rank [a lane [gap, length, …]]}: the time since
/// the end before it in the lane, then its own. With `joined` spans that follow each other closely are one, otherwise
/// each is that of one step, in the order of the lane's steps; −1, −1 stands for a step without one.
nlohmann::ordered_json timeline_data(const Schedule& schedule, const Panel& panel, bool joined);

}  // namespace distattn
