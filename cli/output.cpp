#include "output.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

constexpr int schema_version = 1;

bool prints_here = true;

/// Columns that a terminal shows: bytes that do not continue a UTF-8 character.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string padded(const std::string& cell, std::size_t columns, bool right) {
  const std::string blanks(columns - width(cell), ' ');
  return right ? blanks + cell : cell + blanks;
}

bool is_number(std::string_view cell) {
  return cell == unknown_text ||
         (!cell.empty() && (cell.front() == '-' || (cell.front() >= '0' && cell.front() <= '9')));
}

}  // namespace

Json versioned_object() { return {{"schema_version", schema_version}}; }

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

void print_here(bool here) { prints_here = here; }

void print(std::string_view text) {
  if (!prints_here) return;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  throw Error(ErrorKind::environment,
              fmt::format("cannot write to standard output ({}) send it elsewhere", std::strerror(errno)));
}

std::string json_text(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }
void print_json(const Json& json) { print(json_text(json)); }

Columns::Columns(std::vector<std::string> heads) : rows_{std::move(heads)} {}

void Columns::add(std::vector<std::string> cells) {
  DISTATTN_EXPECT(cells.size() == rows_.front().size());
  rows_.push_back(std::move(cells));
}

Columns::Widths Columns::widths() const {
  const std::size_t columns = rows_.front().size();
  Widths widths{std::vector<std::size_t>(columns, 0), std::vector<bool>(columns, rows_.size() > 1)};
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      widths.columns[c] = std::max(widths.columns[c], width(rows_[r][c]));
      if (r > 0 && !is_number(rows_[r][c])) widths.right[c] = false;
    }
  }
  return widths;
}

std::string Columns::text() const {
  const Widths shape = widths();
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      line += (c == 0 ? "" : "  ") + padded(row[c], shape.columns[c], shape.right[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string Columns::markdown() const {
  const Widths shape = widths();
  std::string text;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    for (std::size_t c = 0; c < rows_[r].size(); ++c) {
      text += fmt::format("| {} ", padded(rows_[r][c], shape.columns[c], shape.right[c]));
    }
    text += "|\n";
    for (std::size_t c = 0; r == 0 && c < rows_[r].size(); ++c) {
      text += fmt::format("|{:-<{}}{}", "", shape.columns[c] + 1, shape.right[c] ? ":" : "-");
    }
    if (r == 0) text += "|\n";
  }
  return text;
}

}  // namespace distattn::cli
