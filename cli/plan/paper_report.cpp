#include "cli/plan/paper_report.hpp"

#include <fmt/format.h>

#include <cmath>

#include "cli/terminal/output.hpp"

namespace distattn::cli {
namespace {

std::string figure(double value, const std::string& unit) {
  if (!std::isfinite(value)) return "–";
  if (unit == "bytes") return fmt::format("{:.4g} GB", value / 1e9);
  return unit == "tokens" ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

std::string percent(double share) { return std::isfinite(share) ? fmt::format("{:+.1f} %", 100 * share) : "–"; }

constexpr std::string_view legend =
    "counted: exact; modelled: a formula for another system; predicted: on a described machine, nothing was measured; "
    "calibrated: on a machine that was fitted to this figure";

std::string published(const PaperRow& row) {
  if (row.bound == PaperBound::equal || std::isnan(row.published)) return figure(row.published, row.unit);
  return fmt::format("{} {}", name_of(row.bound), figure(row.published, row.unit));
}

/// The explanation, and the difference that it accounts for.
std::string why(const PaperRow& row) {
  std::string text = row.note;
  if (row.claim) text += fmt::format(" ({:+.0f} to {:+.0f} %)", 100 * row.claim->least, 100 * row.claim->most);
  if (!row.explained()) text += text.empty() ? "not explained" : "; does not explain this difference";
  return text;
}

}  // namespace

std::vector<PaperFigure> figures_of(const PaperTable& table) {
  std::vector<PaperFigure> figures;
  for (const PaperRow& row : table.rows) figures.push_back({table.title, row});
  return figures;
}

std::string paper_text(const PaperTable& table) {
  Columns columns({"figure", "where", "published", "ours", "ours is", "differs by", "why"});
  for (const PaperRow& row : table.rows) {
    columns.add({row.unit.empty() || row.unit == "bytes" ? row.what : fmt::format("{} ({})", row.what, row.unit),
                 row.where, published(row), figure(row.ours, row.unit), std::string(name_of(row.kind)),
                 percent(row.relative_difference()), why(row)});
  }
  return fmt::format("{}\n{}\n{}\n{}\n\n{}", table.title, table.source, table.scope, legend, columns.text());
}

}  // namespace distattn::cli
