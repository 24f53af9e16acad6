#include "paper_report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>

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

Json paper_json(const PaperTable& table) {
  Json rows = Json::array();
  for (const PaperRow& row : table.rows) {
    Json json = versioned_object();
    json["paper"] = table.title;
    json["what"] = row.what;
    json["where"] = row.where;
    json["unit"] = row.unit;
    json["published"] = number_or_null(row.published);
    json["ours"] = number_or_null(row.ours);
    json["relative_difference"] = number_or_null(row.relative_difference());
    json["note"] = row.note;
    json["bound"] = name_of(row.bound);
    json["ours_is"] = name_of(row.kind);
    json["claimed_least"] = row.claim ? Json(row.claim->least) : Json(nullptr);
    json["claimed_most"] = row.claim ? Json(row.claim->most) : Json(nullptr);
    json["explained"] = row.explained();
    rows.push_back(std::move(json));
  }
  return rows;
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
