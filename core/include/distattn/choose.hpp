#pragma once
/// What `auto` means: a search over tables, layouts, mesh shapes and `ahead` with simulate as its cost.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "distattn/lower.hpp"
#include "distattn/machine.hpp"
#include "distattn/problem.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// Which passes a choice is made for.
enum class Passes : std::uint8_t { forward, both };

/// What a choice must respect.
struct ChoiceLimits {
  Passes passes = Passes::forward;
  int node_size = 0;           ///< as in Routes
  std::optional<int> ahead{};  ///< nothing: searched where there are several nodes
  std::optional<Mode> mode{};  ///< nothing: each schedule's own
  std::int64_t memory_bytes = std::numeric_limits<std::int64_t>::max();  ///< of a rank's buffers
  int threads = 1;  ///< that a rank computes with, where the machine has cores
};

/// A schedule "F" or "F/B" and what it is predicted to cost.
struct Choice {
  std::string name;
  Routes routes;
  double predicted_s = 0;         ///< of the passes that were asked for
  std::int64_t memory_bytes = 0;  ///< the most that a rank's buffers take, those of both passes side by side
};

/// Schedules by predicted time, then by name, both passes of one layout; the first is what auto means. Holds the best
/// few of each layout, each once, with the `ahead` that serves it best. Depends on its arguments only, so that
/// everybody who gives the same chooses the same; ranks that describe their own machines may not (attention.hpp). A
/// rank may use what the limits and the machine's memory allow. Throws Error(usage) when nothing applies or fits,
/// saying how much each schedule needs.
std::vector<Choice> rank_schedules(const Problem& problem, int ranks, const Machine& machine,
                                   const ChoiceLimits& limits);

/// The best of rank_schedules.
Choice choose_schedule(const Problem& problem, int ranks, const Machine& machine, const ChoiceLimits& limits);

}  // namespace distattn
#pragma GCC visibility pop
