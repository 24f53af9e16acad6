#include "distattn/papers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "core/src/embedded.hpp"
#include "core/src/json_fields.hpp"
#include "core/src/papers/paper_quantity.hpp"
#include "distattn/error.hpp"

namespace distattn {
namespace {

using nlohmann::json;

constexpr std::string_view folder = "papers/";

PaperRow read_row(const json& object, const PaperQuantities& quantities, const std::string& origin) {
  JsonFields fields(object, origin);
  PaperRow row;
  row.what = fields.text("what");
  row.where = fields.text("where");
  const json& published = fields.at("published");
  row.published = published.is_null() ? std::numeric_limits<double>::quiet_NaN() : published.get<double>();
  row.ours = quantities.compute(fields.at("ours"));
  if (fields.find("unit") != nullptr) row.unit = fields.text("unit");
  if (fields.find("note") != nullptr) row.note = fields.text("note");
  fields.finish();
  return row;
}

}  // namespace

std::vector<std::string> paper_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name.starts_with(folder)) names.emplace_back(file.name.substr(folder.size()));
  }
  return names;
}

PaperTable compare_with_paper(const std::string& name) {
  const auto text = embedded_file(std::string(folder) + name);
  if (!text)
    refuse(fmt::format("no paper '{}' (its figures are not here) use {}", name, fmt::join(paper_names(), ", ")));
  const std::string origin = "paper " + name;
  const json parsed = parse_json(*text, origin);
  JsonFields fields(parsed, origin);
  std::map<std::string, Machine> machines;
  for (const auto& [key, description] : fields.at("machines").items()) {
    machines.emplace(key, machine_from_json(description.dump(), origin + ", machine " + key));
  }
  const PaperQuantities quantities(std::move(machines), origin);
  PaperTable table{fields.text("title"), fields.text("source"), fields.text("scope"), {}};
  for (const json& row : fields.at("rows")) table.rows.push_back(read_row(row, quantities, origin));
  fields.finish();
  return table;
}

}  // namespace distattn
