#include "core/src/schedule/schedule_grid.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "distattn/index.hpp"

namespace distattn {
namespace {

constexpr std::size_t most_items = 4;  // products in one cell, before it only says how many tiles there are

using Indices = std::set<std::size_t>;

/// "0-3,7"
std::string ranges(const Indices& indices) {
  std::vector<std::string> parts;
  for (auto first = indices.begin(); first != indices.end();) {
    auto last = first;
    while (std::next(last) != indices.end() && *std::next(last) == *last + 1) ++last;
    parts.push_back(first == last ? fmt::format("{}", *first) : fmt::format("{}-{}", *first, *last));
    first = std::next(last);
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

/// The tiles of one rank in one step: by head group and query segment, the key segments.
class Cell {
 public:
  void add(const Value& query, std::size_t key) {
    tiles_[{query.group, index(query.segment)}].insert(key);
    ++count_;
  }

  /// "q0,7·k3 q7·k4", with "g1:" before a head group's first product where there are several groups.
  std::string text(bool name_groups) const {
    std::map<std::pair<int, Indices>, Indices> queries_with;  // by head group and key segments
    for (const auto& [query, keys] : tiles_) queries_with[{query.first, keys}].insert(query.second);
    if (queries_with.empty()) return "-";
    if (queries_with.size() > most_items) return fmt::format("{} tiles", count_);
    std::vector<std::string> items;
    int named = -1;
    for (const auto& [with, queries] : queries_with) {
      const auto& [group, keys] = with;
      const std::string prefix = name_groups && group != named ? fmt::format("g{}:", group) : "";
      items.push_back(fmt::format("{}q{}·k{}", prefix, ranges(queries), ranges(keys)));
      named = group;
    }
    return fmt::format("{}", fmt::join(items, " "));
  }

 private:
  std::map<std::pair<int, std::size_t>, Indices> tiles_;
  std::size_t count_ = 0;
};

/// One rank's cells by step number.
std::map<int, Cell> cells_of(const RankProgram& program) {
  std::map<int, Cell> cells;
  const auto value = [&](BufferId buffer) -> const Value& { return program.buffers[index(buffer)].value; };
  for (const Step& step : program.steps)
    for (const Op& op : step.ops) {
      const auto add = [&](const auto& attend) {
        for (const KeyChunk& chunk : attend.keys)
          cells[step.number].add(value(attend.query), index(value(chunk.key_value).segment));
      };
      if (const auto* forward = std::get_if<Attend>(&op)) add(*forward);
      if (const auto* backward = std::get_if<AttendBackward>(&op)) add(*backward);
    }
  return cells;
}

struct Column {
  std::string title;
  std::vector<std::string> rows;
  std::size_t width = 0;
};

/// Columns as wide as what people see: the middle dot is two bytes.
std::size_t width_of(const std::string& text) {
  return index(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::vector<Column> columns_of(const Schedule& schedule) {
  const bool name_groups = schedule.outline.sharding.groups.size() > 1;
  std::vector<std::map<int, Cell>> by_rank;
  std::set<int> numbers;
  for (const RankProgram& program : schedule.ranks) {
    by_rank.push_back(cells_of(program));
    for (const auto& [number, cell] : by_rank.back()) numbers.insert(number);
  }
  std::vector<Column> columns;
  for (const int number : numbers) {
    Column column{fmt::format("step {}", number), {}, 0};
    column.width = column.title.size();
    for (std::map<int, Cell>& cells : by_rank) {
      column.rows.push_back(cells[number].text(name_groups));
      column.width = std::max(column.width, width_of(column.rows.back()));
    }
    columns.push_back(std::move(column));
  }
  return columns;
}

void append_row(std::string& out, const std::string& head, std::size_t head_width, const std::vector<Column>& columns,
                std::size_t begin, std::size_t end, const auto& text_of) {
  std::string line = fmt::format("{:<{}}", head, head_width);
  for (std::size_t c = begin; c < end; ++c) {
    const std::string& text = text_of(columns[c]);
    line += "  " + text + std::string(columns[c].width - width_of(text), ' ');
  }
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + '\n';
}

}  // namespace

std::string tile_grid(const Schedule& schedule, std::size_t panel_width) {
  const std::vector<Column> columns = columns_of(schedule);
  if (columns.empty()) return "no tile is visible\n";
  const std::size_t head_width = std::max<std::size_t>(4, fmt::format("{}", schedule.ranks.size()).size());
  std::string out;
  for (std::size_t begin = 0; begin < columns.size();) {
    std::size_t end = begin, width = head_width;
    do width += 2 + columns[end++].width;
    while (end < columns.size() && width + 2 + columns[end].width <= panel_width);
    if (begin > 0) out += '\n';
    append_row(out, "rank", head_width, columns, begin, end,
               [](const Column& c) -> const std::string& { return c.title; });
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
      append_row(out, fmt::format("{}", rank), head_width, columns, begin, end,
                 [rank](const Column& c) -> const std::string& { return c.rows[rank]; });
    begin = end;
  }
  return out;
}

}  // namespace distattn
