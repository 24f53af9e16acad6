#pragma once
/// Compares papers' published figures with ours.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "distattn/types.hpp"

namespace distattn {

/// How a figure of ours was obtained; for a ratio, the weaker of its two parts.
enum class PaperKind : std::uint8_t {
  counted,     ///< exact: from programs, or from a model's sizes
  modelled,    ///< a closed formula for a system that is not implemented here
  predicted,   ///< simulated programs, or a step's model, on a described machine
  calibrated,  ///< like predicted, but on a machine that was fitted to this figure, so that it is no prediction
  absent,      ///< not computed here
};
constexpr std::string_view name_of(PaperKind kind) {
  constexpr std::string_view names[] = {"counted", "modelled", "predicted", "calibrated", "absent"};
  return names[index(kind)];
}

/// Whether a published figure is the quantity's value or a bound on it.
enum class PaperBound : std::uint8_t { equal, at_least, at_most };
constexpr std::string_view name_of(PaperBound bound) {
  constexpr std::string_view names[] = {"equal", "at least", "at most"};
  return names[index(bound)];
}

/// The range of relative differences that an explanation accounts for; both ends have the same sign.
struct PaperClaim {
  double least = 0, most = 0;
  friend bool operator==(const PaperClaim&, const PaperClaim&) = default;
};

/// Relative differences below this need no explanation.
inline constexpr double paper_agreement = 0.03;

struct PaperRow {
  std::string what, where;  ///< the quantity; table, figure or section of the paper
  double published = 0;     ///< NaN: the paper gives no number
  PaperBound bound = PaperBound::equal;
  double ours = 0;  ///< NaN: absent
  PaperKind kind = PaperKind::counted;
  std::string unit;
  std::string note;                 ///< why the figures differ, or why one is missing
  std::optional<PaperClaim> claim;  ///< the difference that the note explains

  /// ours / published - 1; NaN if one is missing; `ours` if 0 was published.
  double relative_difference() const { return published != 0 ? ours / published - 1 : ours; }
  /// Whether our figure equals the published one to within paper_agreement, or keeps its bound.
  bool agrees() const;
  /// Whether nothing is left to explain: the difference is within the claim; or there is no claim and the figures
  /// agree; or one is missing and the note says why.
  bool explained() const;
};

struct PaperTable {
  std::string title, source;
  std::string scope;  ///< which figures of the paper are left out, and why
  std::vector<PaperRow> rows;
};

/// A quantity's value and how it was obtained.
struct PaperValue {
  double value = 0;
  PaperKind kind = PaperKind::counted;
};

/// Reads a paper's data file, a JSON object:
///   title, source, scope
///   methods         by name, fields that a quantity with "by": name takes over
///   reasons         by name, {"text": …, "differs": [least, most]}: an explanation and the relative differences that
///   it
///                   accounts for, which have one sign; without them it says why a figure is missing
///   rows            {"where", "what", "published": number or null, "ours": quantity or null}, and where they are
///   needed
///                   "bound": "at least" | "at most", "unit", "because": a reason's name, "differs": this row's own,
///                   "fitted": true where a machine was fitted to this very figure
/// A quantity is {"ratio": [a, b]}, {"sum": [a, b]}, {"difference": [a, b]}, {"overhead": [a, b]} (a/b, a+b, a-b,
/// a/b - 1), {"least": [a, …]}, {"most": [a, …]}, or an object that `compute` understands, which is given its JSON
/// text, each text once. Throws Error(usage) naming `origin` and what it does not understand.
PaperTable read_paper(std::string_view text, const std::string& origin,
                      const std::function<PaperValue(const std::string& quantity)>& compute);

/// "attention2d", "burstattention", "distflashattn"
std::vector<std::string> paper_names();

/// Compares the paper's figures on attention alone. Plans, proves and simulates: our quantity of every row is computed
/// from schedules. Throws Error(usage) for an unknown name, listing the known ones.
PaperTable compare_with_paper(const std::string& name);

}  // namespace distattn
