#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "cli/terminal/output.hpp"
#include "cli/terminal/standard_streams.hpp"
#include "cli/terminal/terminal.hpp"
#include "core/src/fields.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

using Row = std::vector<std::string>;

constexpr std::size_t gap = 2;

std::string padded(const std::string& cell, std::size_t columns, bool right) {
  const std::string blanks(columns - columns_of(cell), ' ');
  return right ? blanks + cell : cell + blanks;
}

bool is_number(std::string_view cell) {
  return cell == unknown_text ||
         (!cell.empty() && (cell.front() == '-' || (cell.front() >= '0' && cell.front() <= '9')));
}

/// A column of a block, and how wide it is there.
struct Placed {
  std::size_t column, width;
};

/// Columns next to each other, as many as fit; every block begins with the first one, which says what a row is.
std::vector<std::vector<Placed>> blocks(const std::vector<std::size_t>& widths, std::size_t limit) {
  constexpr std::size_t least_text = 24;  // columns in which words can still be read
  const std::size_t first = std::min(widths[0], std::max<std::size_t>(limit / 2, 1));
  const std::size_t room = limit > first + gap ? limit - first - gap : 1;
  std::vector<std::vector<Placed>> made;
  std::size_t left = 0;
  for (std::size_t c = 1; c < widths.size(); ++c) {
    const bool fits = left >= gap + widths[c];
    const bool can_be_broken = c + 1 == widths.size() && left >= gap + least_text && widths[c] > room / 2;
    if (!fits && !can_be_broken) {
      made.push_back({{0, first}});
      left = room + gap;
    }
    const std::size_t width = std::min(widths[c], left - gap);
    made.back().push_back({c, width});
    left -= gap + width;
  }
  if (made.empty()) made.push_back({{0, std::min(widths[0], limit)}});
  return made;
}

/// One row's cells of a block, in as many lines as the longest needs.
std::string lines_of(const Row& row, const std::vector<Placed>& block, const std::vector<bool>& right) {
  std::vector<std::vector<std::string>> cells;
  std::size_t count = 0;
  for (const Placed& placed : block) {
    cells.push_back(wrapped(row[placed.column], placed.width));
    count = std::max(count, cells.back().size());
  }
  std::string text;
  for (std::size_t l = 0; l < count; ++l) {
    std::string line;
    for (std::size_t c = 0; c < block.size(); ++c) {
      const std::string cell = l < cells[c].size() ? cells[c][l] : "";
      const std::size_t width = std::max(block[c].width, columns_of(cell));
      line += (c == 0 ? "" : std::string(gap, ' ')) + padded(cell, width, right[block[c].column]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace

Columns::Columns(std::vector<std::string> heads) : rows_{std::move(heads)} {}

void Columns::add(std::vector<std::string> cells) {
  DISTATTN_EXPECT(cells.size() == rows_.front().size());
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

Columns::Widths Columns::widths() const {
  const std::size_t columns = rows_.front().size();
  Widths widths{std::vector<std::size_t>(columns, 0), std::vector<bool>(columns, rows_.size() > 1)};
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      widths.columns[c] = std::max(widths.columns[c], columns_of(rows_[r][c]));
      if (r > 0 && !is_number(rows_[r][c])) widths.right[c] = false;
    }
  }
  return widths;
}

std::string Columns::text() const {
  const Widths shape = widths();
  std::string text;
  for (const std::vector<Placed>& block : blocks(shape.columns, columns_of_lines(results_descriptor()))) {
    if (!text.empty()) text += "\n";
    for (const Row& row : rows_) text += lines_of(row, block, shape.right);
  }
  return text;
}

std::string Columns::markdown() const {
  Columns escaped = *this;
  for (Row& row : escaped.rows_) {
    for (std::string& cell : row) {
      for (std::size_t bar = 0; (bar = cell.find('|', bar)) != cell.npos; bar += 2) cell.insert(bar, 1, '\\');
    }
  }
  const std::vector<Row>& rows = escaped.rows_;
  const Widths shape = escaped.widths();
  std::string text;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < rows[r].size(); ++c) {
      text += fmt::format("| {} ", padded(rows[r][c], shape.columns[c], shape.right[c]));
    }
    text += "|\n";
    for (std::size_t c = 0; r == 0 && c < rows[r].size(); ++c) {
      text += fmt::format("|{:-<{}}{}", "", shape.columns[c] + 1, shape.right[c] ? ":" : "-");
    }
    if (r == 0) text += "|\n";
  }
  return text;
}

std::string Columns::fitting() const {
  const std::string table = markdown();
  const std::size_t line = columns_of(std::string_view(table).substr(0, table.find('\n')));
  return line <= columns_of_lines(results_descriptor()) ? table : text();
}

}  // namespace distattn::cli
