#pragma once
/// Rows as JSON, as CSV, and as tables for people.

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cli/terminal/output.hpp"
#include "cli/tools/page.hpp"
#include "core/src/fields.hpp"

namespace distattn::cli {

/// The object that a row is in the output: the version of its form, then its fields.
template <class Row>
Json row_json(const Row& row) {
  Json json = versioned_object();
  json.update(RowFields::json_of(row));
  return json;
}
template <class Row>
Json rows_json(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) list.push_back(row_json(row));
  return list;
}

using FieldsOfRows = std::vector<std::vector<Field>>;
template <class Row>
FieldsOfRows fields_of_rows(const std::vector<Row>& rows) {
  FieldsOfRows fields;
  for (const Row& row : rows) fields.push_back(RowFields::of(row));
  return fields;
}

enum class Shown : std::uint8_t {
  always,
  where_known,        ///< in a row at least
  where_rows_differ,  ///< and not only because a field follows one that differs
};
/// A column of a table: a field of every row.
struct Column {
  const char* head;
  const char* field;
  Shown shown = Shown::always;
};
Columns table_of(const FieldsOfRows& rows, std::span<const Column> columns);
/// The same for a page, on which no row is drawn yet.
PageTable page_table_of(const FieldsOfRows& rows, std::span<const Column> columns);

/// Objects as columns "error.o", every number in full; lists and what `without` names are left out.
std::string csv_of(const FieldsOfRows& rows, std::string_view without);

}  // namespace distattn::cli
