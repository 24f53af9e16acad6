#include "bench_report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "distattn/words.hpp"
#include "problem_fields.hpp"

namespace distattn::cli {
namespace {

/// A column of the table: a field, and how a person reads it.
struct Column {
  const char* head;
  const char* field;
  std::string (*text)(const Json& value);
  bool where_rows_differ = false;  ///< shown only if they do
};

double number(const Json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::string seconds(const Json& value) { return seconds_in_words(number(value)); }
std::string bytes(const Json& value) { return bytes_in_words(number(value)); }
std::string bytes_rate(const Json& value) { return bytes_in_words(number(value)) + "/s"; }
std::string percent(const Json& value) { return fmt::format("{:.1f} %", 100 * number(value)); }
std::string hundredths(const Json& value) { return fmt::format("{:.2f}", number(value)); }
std::string power_of_ten(const Json& value) { return fmt::format("{:.1e}", number(value)); }

constexpr Column columns[] = {{"kernel", "kernel", plain_text},
                              {"schedule", "schedule", plain_text},
                              {"pass", "pass", plain_text},
                              {"coverage", "coverage", plain_text},
                              {"variant", "variant", plain_text},
                              {"ranks", "ranks", plain_text},
                              {"threads", "threads", plain_text},
                              {"tokens", "seq", plain_text},
                              {"keys", "seq_kv", plain_text, true},
                              {"mask", "mask", plain_text, true},
                              {"batch", "batch", plain_text, true},
                              {"heads", "heads", plain_text, true},
                              {"key heads", "kv_heads", plain_text, true},
                              {"head dim", "head_dim", plain_text, true},
                              {"value dim", "value_dim", plain_text, true},
                              {"type", "dtype", plain_text, true},
                              {"wire", "wire", plain_text, true},
                              {"mode", "mode", plain_text, true},
                              {"median", "median_s", seconds},
                              {"p10", "p10_s", seconds},
                              {"p90", "p90_s", seconds},
                              {"latency", "latency_s", seconds},
                              {"GFLOP/s", "gflops", hundredths},
                              {"a rank", "gflops_per_rank", hundredths},
                              {"of peak", "share", percent},
                              {"used", "used", plain_text},
                              {"fastest", "fastest", plain_text},
                              {"sent max", "bytes_sent_max", bytes},
                              {"bytes", "bytes_per_s", bytes_rate},
                              {"exposed", "exposed_s", seconds},
                              {"predicted", "predicted_s", seconds},
                              {"measured/predicted", "ratio_to_prediction", hundredths},
                              {"error", "max_error", power_of_ten},
                              {"#wrong", "wrong", plain_text}};

/// A row's field; null where it has none. An error that is not finite has no number in JSON, but shows in `ok`.
Json value_of(const Json& row, std::string_view field) {
  const Json value = row.value(field, Json());
  const bool infinite = field == "max_error" && value.is_null() && row.value("ok", Json()) == false &&
                        row.value("failure", Json()).is_null();
  return infinite ? Json(std::numeric_limits<double>::infinity()) : value;
}

bool is_shown(const Column& column, const std::vector<Json>& rows) {
  if (column.where_rows_differ) return differ_in(rows, column.field);
  return std::any_of(rows.begin(), rows.end(), [&](const Json& row) { return !value_of(row, column.field).is_null(); });
}

std::string markdown(const std::vector<Json>& rows) {
  std::vector<Column> shown;
  std::vector<std::string> heads;
  for (const Column& column : columns) {
    if (!is_shown(column, rows)) continue;
    shown.push_back(column);
    heads.emplace_back(column.head);
  }
  Columns table(heads);
  for (const Json& row : rows) {
    std::vector<std::string> cells;
    for (const Column& column : shown) {
      const Json value = value_of(row, column.field);
      cells.push_back(value.is_null() ? unknown_text : column.text(value));
    }
    table.add(std::move(cells));
  }
  return table.markdown();
}

std::string cell(const Json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  std::string quoted = "\"";
  for (const char c : value.get<std::string>()) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

using Fields = std::vector<std::pair<std::string, std::string>>;

/// The fields of a row without objects in objects: "error.o". The backward pass has a row of its own, a list of parts
/// no cell.
Fields flat(const Json& row) {
  Fields fields;
  for (const auto& [name, value] : row.items()) {
    if (name == "backward" || name == "error_parts") continue;
    if (value.is_object()) {
      for (const auto& [inner, each] : value.items()) fields.emplace_back(name + "." + inner, cell(each));
    } else {
      fields.emplace_back(name, cell(value));
    }
  }
  return fields;
}

std::string csv(const std::vector<Json>& rows) {
  // What one row has as an object, as what is compared with float64, may be null in another.
  const auto fullest = std::max_element(rows.begin(), rows.end(),
                                        [](const Json& a, const Json& b) { return flat(a).size() < flat(b).size(); });
  const Fields heads = flat(*fullest);
  std::string text;
  const auto add_line = [&](auto cell_of) {
    for (std::size_t i = 0; i < heads.size(); ++i) {
      if (i > 0) text += ',';
      text += cell_of(heads[i].first);
    }
    text += '\n';
  };
  add_line([](const std::string& head) { return head; });
  for (const Json& row : rows) {
    const Fields fields = flat(row);
    std::map<std::string, std::string> cells(fields.begin(), fields.end());
    add_line([&](const std::string& head) { return cells[head]; });
  }
  return text;
}

}  // namespace

std::string text_of(const std::vector<Json>& rows, BenchForm form) {
  if (form == BenchForm::json) return json_text(rows);
  return form == BenchForm::csv ? csv(rows) : markdown(rows);
}

}  // namespace distattn::cli
