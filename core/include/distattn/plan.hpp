#pragma once
/// What a schedule would cost: planned, proved and counted, without arithmetic on tensors.

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "distattn/choose.hpp"
#include "distattn/lower.hpp"
#include "distattn/simulate.hpp"
#include "distattn/table.hpp"
#include "distattn/verify.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// One pass of one schedule, counted. Bytes are those of messages' payloads.
struct PassPlan {
  std::string schedule;  ///< "F/B" where the passes of a pair differ
  std::int64_t seq_q = 0;
  Pass pass = Pass::forward;
  int ranks = 1;
  Mode mode = Mode::overlapped;
  Routes routes;
  VerifyReport report;
  double idle_ideal = 0;  ///< share of rank-time without compute on infinite links, work counted in visible pairs
  double predicted_s = std::numeric_limits<double>::quiet_NaN();  ///< NaN: no machine was given
};

/// Lowers, proves and counts, rank by rank, on as many threads as there are cores; programs are dropped at once.
/// Predicts its time too where a machine is given, each rank computing with `threads` threads (simulate).
PassPlan plan_pass(const Recipe& recipe, std::shared_ptr<const Tiles> tiles, Pass pass, Mode mode, const Routes& routes,
                   const Machine* machine = nullptr, int threads = 1);

/// The passes of a schedule "F" or "F/B" on a machine with its cores shared by the ranks, in `mode` or else in the
/// schedule's own; or the reason why it does not apply or has too many messages to plan.
std::variant<std::vector<PassPlan>, std::string> plan_schedule(std::string_view name, const Problem& problem, int ranks,
                                                               Passes passes, std::optional<Mode> mode,
                                                               const Routes& routes, const Machine& machine);

/// One JSON object, as in the array that `distattn plan --json` prints.
std::string to_json(const PassPlan& plan);

}  // namespace distattn
#pragma GCC visibility pop
