#include "cli/step/papers.hpp"

#include <limits>

#include "cli/step/embedded.hpp"
#include "cli/step/paper_figure.hpp"
#include "distattn/error.hpp"

namespace distattn::step {
namespace {

using nlohmann::json;

PaperRow read_row(const json& fields, const PaperFigures& figures) {
  PaperRow row;
  row.where = fields.at("where").get<std::string>();
  row.what = fields.at("what").get<std::string>();
  const json& published = fields.at("published");
  row.published = published.is_null() ? std::numeric_limits<double>::quiet_NaN() : published.get<double>();
  row.ours = figures.compute(fields.at("ours"));
  row.unit = fields.value("unit", std::string());
  row.note = fields.value("note", std::string());
  return row;
}

PaperTable read_table(std::string_view text) {
  const json file = json::parse(text);
  std::map<std::string, Machine> machines;
  for (const auto& [name, description] : file.at("machines").items()) {
    machines.emplace(name, machine_from_json(description.dump(), "machine " + name));
  }
  const PaperFigures figures(std::move(machines), file.at("methods"));
  PaperTable table{file.at("title").get<std::string>(),
                   file.at("source").get<std::string>(),
                   file.at("scope").get<std::string>(),
                   {}};
  for (const json& row : file.at("rows")) table.rows.push_back(read_row(row, figures));
  return table;
}

}  // namespace

PaperTable compare_steps_with_paper(const std::string& name) {
  std::string known;
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name == name) return read_table(file.text);
    known += (known.empty() ? "" : ", ") + std::string(file.name);
  }
  refuse("no paper '" + name + "' (its steps are not here) use " + known);
}

}  // namespace distattn::step
