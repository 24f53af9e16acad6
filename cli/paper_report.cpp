#include "paper_report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace distattn::cli {
namespace {

std::string figure(double value) { return std::isfinite(value) ? fmt::format("{:.4g}", value) : "–"; }

std::string percent(double share) { return std::isfinite(share) ? fmt::format("{:+.1f} %", 100 * share) : "–"; }

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
    rows.push_back(std::move(json));
  }
  return rows;
}

std::string paper_text(const PaperTable& table) {
  Columns columns({"figure", "where", "published", "ours", "differs by", "why"});
  for (const PaperRow& row : table.rows) {
    columns.add({row.unit.empty() ? row.what : fmt::format("{} ({})", row.what, row.unit), row.where,
                 figure(row.published), figure(row.ours), percent(row.relative_difference()), row.note});
  }
  return fmt::format("{}\n{}\n{}\n\n{}", table.title, table.source, table.scope, columns.text());
}

}  // namespace distattn::cli
