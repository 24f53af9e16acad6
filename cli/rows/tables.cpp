#include "cli/rows/tables.hpp"

#include <algorithm>
#include <map>

#include "cli/terminal/terminal.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

const Field& field_named(const std::vector<Field>& row, std::string_view name) {
  const auto found = std::find_if(row.begin(), row.end(), [&](const Field& field) { return field.about.name == name; });
  DISTATTN_EXPECT(found != row.end());
  return *found;
}

bool differ_in(const FieldsOfRows& rows, std::string_view name) {
  const Field& first = field_named(rows.front(), name);
  const auto any = [&](auto is) { return std::any_of(rows.begin(), rows.end(), is); };
  return any([&](const auto& row) { return field_named(row, name).text != first.text; }) &&
         (first.about.follows == nullptr || any([&](const auto& row) {
            return field_named(row, name).text != field_named(row, first.about.follows).text;
          }));
}

bool is_shown(const Column& column, const FieldsOfRows& rows) {
  if (column.shown == Shown::always) return true;
  if (column.shown == Shown::where_rows_differ) return differ_in(rows, column.field);
  return std::any_of(rows.begin(), rows.end(),
                     [&](const auto& row) { return field_named(row, column.field).text != unknown_text; });
}

std::string csv_cell(const Json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  std::string quoted = "\"";
  for (const char c : printable(value.get<std::string>())) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

using Cells = std::vector<std::pair<std::string, std::string>>;

Cells csv_cells(const std::vector<Field>& row, std::string_view without) {
  Cells cells;
  for (const Field& field : row) {
    if (field.is_list || field.about.name == without) continue;
    if (!field.json.is_object()) {
      cells.emplace_back(field.about.name, csv_cell(field.json));
      continue;
    }
    for (const auto& [name, value] : field.json.items())
      cells.emplace_back(fmt::format("{}.{}", field.about.name, name), csv_cell(value));
  }
  return cells;
}

}  // namespace

Columns table_of(const FieldsOfRows& rows, std::span<const Column> columns) {
  std::vector<std::vector<std::string>> lines(rows.size() + 1);
  for (const Column& column : columns) {
    if (!is_shown(column, rows)) continue;
    lines.front().emplace_back(column.head);
    for (std::size_t i = 0; i < rows.size(); ++i) lines[i + 1].push_back(field_named(rows[i], column.field).text);
  }
  Columns table(std::move(lines.front()));
  for (std::size_t i = 1; i < lines.size(); ++i) table.add(std::move(lines[i]));
  return table;
}

PageTable page_table_of(const FieldsOfRows& rows, std::span<const Column> columns) {
  PageTable table;
  table.rows.resize(rows.size());
  for (const Column& column : columns) {
    if (!is_shown(column, rows)) continue;
    table.heads.push_back({column.head, field_named(rows.front(), column.field).about.meaning});
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Field& field = field_named(rows[i], column.field);
      auto& cell = table.rows[i].cells.emplace_back(PageTable::Cell{field.text});
      if (field.json.is_number()) cell.value = field.json.get<double>();
    }
  }
  return table;
}

std::string csv_of(const FieldsOfRows& rows, std::string_view without) {
  std::vector<Cells> all;
  for (const auto& row : rows) all.push_back(csv_cells(row, without));
  // What one row has as an object, as what is compared with float64, may be null in another.
  const Cells heads =
      *std::max_element(all.begin(), all.end(), [](const Cells& a, const Cells& b) { return a.size() < b.size(); });
  std::string text = "schema_version";
  for (const auto& [head, cell] : heads) text += "," + head;
  for (const Cells& cells : all) {
    const std::map<std::string, std::string> by_head(cells.begin(), cells.end());
    text += "\n" + versioned_object().front().dump();
    for (const auto& [head, cell] : heads) text += "," + (by_head.contains(head) ? by_head.at(head) : "");
  }
  return text + "\n";
}

}  // namespace distattn::cli
