#pragma once
/// The rows of `plan`: schedules × shapes × ranks × routes, planned, proved and predicted.

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options/problem_lists.hpp"
#include "cli/options/schedule_options.hpp"
#include "cli/plan/latents.hpp"
#include "cli/rows/plan.hpp"
#include "distattn/choose.hpp"

namespace distattn::cli {

/// Whether messages follow nodes. both: every schedule twice.
enum class RouteKinds : std::uint8_t { routed, straight, both };

struct PlanRequest {
  ProblemLists problem;
  ScheduleOptions schedule;
  RouteKinds routes = RouteKinds::routed;
  std::optional<Latents> latents = {};  ///< what keys and values may be sent as: every row twice
  bool backward = false;
};

/// What auto chose for one problem, best first.
struct AutoChoice {
  Problem problem;
  int ranks = 1;
  std::vector<Choice> ranking;
  bool latents = false;  ///< if these are sent
};

/// How good a placement is that was made for one problem.
struct PlacementNote {
  Problem problem;
  int ranks = 1;
  std::string bound;
  double predicted_s = 0, lower_bound_s = 0;  ///< all passes together
};

/// What auto or placed made for several masks on one layout.
struct SharedLayout {
  struct OfMask {
    std::string mask;
    double layers = 1;
    std::string schedule;
    double predicted_s = 0;  ///< all passes together, of one layer
  };
  std::string asked;
  int ranks = 1;
  std::vector<OfMask> masks;
};

/// The best rows of one pass that send keys and values as they are, and as latents.
struct LatentChoice {
  std::size_t keys = 0, latents = 0;
};

struct PlanRows {
  std::vector<PlanRow> rows;
  std::vector<WhyNot> skipped;
  std::vector<std::string> no_problems;  ///< combinations of values that are none, and why
  std::vector<AutoChoice> choices;
  std::vector<PlacementNote> placements;
  std::vector<SharedLayout> shared;
  std::vector<LatentChoice> latents = {};  ///< by problem, ranks and pass, as rows are
};

/// By sequence, problem and ranks; forward before backward; then by predicted time, bytes of the busiest rank, bytes,
/// name. Throws Error(usage) where nothing is left, saying how much memory each schedule needs if that is why.
PlanRows plan_rows(const PlanRequest& request, const Machine& machine);

/// Throws Error(usage) with the reasons of all that were skipped.
[[noreturn]] void refuse_all(const std::string& problem, const std::vector<WhyNot>& skipped,
                             const std::string& suggestion);
/// Adds what a list of schedules goes on without; throws the reason for anything else.
void skip(std::vector<WhyNot>& skipped, WhyNot why);
void note_skipped(const std::vector<WhyNot>& skipped);
/// Says how many rows need more bytes a rank than a rank of the machine has. `needed`: bytes a rank, by row.
void note_memory(const std::vector<std::int64_t>& needed, const Machine& machine);

}  // namespace distattn::cli
