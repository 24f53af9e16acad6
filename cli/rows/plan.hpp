#pragma once
/// The rows of `plan`, but for `plan --step`.

#include <memory>
#include <optional>
#include <string>

#include "cli/rows/problem.hpp"
#include "cli/tools/papers.hpp"
#include "core/src/planner/plan_fields.hpp"

namespace distattn::cli {

inline constexpr Unit flop_unit{"FLOP", units::finite<'g', 3>};

/// What keys and values are sent as, where a plan compares latents (distattn/simulate.hpp) with what they expand to.
struct SentAs {
  bool latents = false;
  bool chosen = false;     ///< the faster one: of the pass, or for auto of all passes
  double flops = 0;        ///< of products that expanded keys would not need on arrival, of the rank that has most
  double predicted_s = 0;  ///< of these products, at the machine's best rate
};

/// One pass of one schedule.
struct PlanRow {
  PassPlan plan;
  std::shared_ptr<const Problem> problem;
  std::size_t number = 0;         ///< of the problem among all
  bool automatic = false;         ///< auto chose it
  std::int64_t memory_bytes = 0;  ///< of a rank, for all passes that were asked for: a run holds their buffers together
  std::string layout = {};        ///< as ScheduleRequest has it
  std::optional<std::string> bound = {};  ///< what binds a placement that was made here
  std::size_t together = 0;               ///< rows of masks on one layout have the same number; 0: the mask is alone
  std::size_t kind = 0;                   ///< of the mask among those on its layout
  double layers = 1;                      ///< that have the mask
  double all_layers_s = unknown_number;   ///< of all masks on the layout
  std::optional<SentAs> sent = {};

  /// What rows are ranked by.
  double seconds() const { return together > 0 ? all_layers_s : plan.predicted_s; }
};

inline void fields_of(const PlanRow& row, RowFields& field) {
  fields_of(row.plan, field);
  field({"auto", units::none, "Whether auto chose the schedule."}, row.automatic);
  field(
      {"bound", units::none,
       "What keeps a placement that was made here from being faster: compute, near, far, tokens or one document; null "
       "for other schedules."},
      row.bound);
  field({"layers", units::none, "How many layers have the mask, of several on one layout; 1 for a mask alone."},
        row.layers);
  field({"all_layers_s", units::seconds,
         "Sum over the masks on one layout of predicted_s of this pass times layers; null for a mask alone."},
        row.all_layers_s);
  const auto of_sent = [&](auto SentAs::*figure) {
    return row.sent ? std::optional((*row.sent).*figure) : std::nullopt;
  };
  const auto latents = of_sent(&SentAs::latents);
  field({"sent_as", units::none, "What keys and values are sent as: keys or latents; null without --latents."},
        latents ? std::optional<std::string>(*latents ? "latents" : "keys") : std::nullopt);
  field(
      {"chosen", units::none,
       "Whether this is the faster way to send them: of the pass, or for auto of all passes; null without --latents."},
      of_sent(&SentAs::chosen));
  field({"expansion_flops_max", flop_unit,
         "FLOPs of the rank that expands most latents on arrival; null without --latents."},
        of_sent(&SentAs::flops).value_or(unknown_number));
  field({"expansion_s", units::seconds,
         "Predicted time of these FLOPs, at the machine's best rate; null without --latents."},
        of_sent(&SentAs::predicted_s).value_or(unknown_number));
  type_fields(*row.problem, field);
  size_fields(*row.problem, field);
}

/// One published figure and ours.
struct PaperFigure {
  std::string paper;
  PaperRow row;
};

inline void fields_of(const PaperFigure& figure, RowFields& field) {
  const PaperRow& row = figure.row;
  const auto& claim = row.claim;
  field({"paper", units::none, "Title of the paper."}, figure.paper);
  field({"what", units::none, "The figure, in words."}, row.what);
  field({"where", units::none, "Table, figure or section of the paper."}, row.where);
  field({"unit", units::none, "Unit of both figures, empty for a ratio."}, row.unit);
  field({"published", units::none, "The published figure, null if the paper gives none."}, row.published);
  field({"ours", units::none, "Our figure, null if it is absent."}, row.ours);
  field({"relative_difference", units::ratio, "(ours - published) / published."}, row.relative_difference());
  field({"note", units::none, "Why the figures differ, or why one of them is missing."}, row.note);
  field({"bound", units::none, "What the published figure says about the quantity: equal, at least or at most."},
        row.bound);
  field({"ours_is", units::none,
         "counted: exact; modelled: a formula for another system; predicted: on a described machine; calibrated: on a "
         "machine that was fitted to this figure; absent: not computed."},
        row.kind);
  field({"claimed_least", units::ratio, "Least relative difference that the note accounts for, or null."},
        claim ? claim->least : unknown_number);
  field({"claimed_most", units::ratio, "Largest relative difference that the note accounts for, or null."},
        claim ? claim->most : unknown_number);
  field({"explained", units::none,
         "Whether the difference is in this range, or within 3 % where the note accounts for none."},
        row.explained());
}

}  // namespace distattn::cli
