#include "cli/terminal/terminal.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "distattn/launch.hpp"

namespace distattn::cli {
namespace {

using Range = std::pair<std::uint32_t, std::uint32_t>;

// Of Unicode's properties: what is put on the letter before it, and what is as wide as two letters.
constexpr Range no_columns[] = {{0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},   {0x610, 0x61a},
                                {0x64b, 0x65f},   {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x200b, 0x200f},
                                {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xe0100, 0xe01ef}};
constexpr Range two_columns[] = {{0x1100, 0x115f},  {0x2e80, 0x303e},   {0x3041, 0xa4cf},   {0xa960, 0xa97f},
                                 {0xac00, 0xd7a3},  {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},
                                 {0xffe0, 0xffe6},  {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff},
                                 {0x20000, 0x3fffd}};
constexpr Range controls[] = {{0, 0x1f}, {0x7f, 0x9f}, {0x202a, 0x202e}, {0x2066, 0x2069}};

template <std::size_t count>
bool in(const Range (&ranges)[count], std::uint32_t character) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [&](const Range& range) { return range.first <= character && character <= range.second; });
}

/// Takes the first character off; a byte that begins none counts as one.
struct Character {
  std::uint32_t code;
  std::string_view bytes;
};
Character take(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text[0]);
  std::size_t length = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  length = std::min(length, text.size());
  std::uint32_t code = length == 1 ? first : first & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3f);
  const Character character{code, text.substr(0, length)};
  text.remove_prefix(length);
  return character;
}

std::size_t width(std::uint32_t code) { return in(no_columns, code) ? 0 : in(two_columns, code) ? 2 : 1; }

/// Bytes of the longest beginning that fits.
std::size_t fitting(std::string_view text, std::size_t columns) {
  std::size_t bytes = 0, used = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const Character next = take(rest);
    used += width(next.code);
    if (used > columns) break;
    bytes += next.bytes.size();
  }
  return bytes;
}

/// Where a line that is too long goes on.
std::size_t indent_of(std::string_view line, std::size_t columns) {
  const std::size_t part = line.find_first_not_of(' ', std::min(line.find("  "), line.size()));
  const std::size_t label = columns_of(line.substr(0, part));
  return label <= columns / 3 ? label : std::min<std::size_t>(2, columns / 8);
}

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

bool is_terminal(int fd) {
  if (::isatty(fd) == 0) return false;
  static const bool launched = !launch_findings().variables.empty();
  // The terminal of srun --pty, and of ranks started by hand, is that of their session.
  return !launched || ::tcgetsid(fd) >= 0;
}

bool can_overwrite(int fd) {
  const std::string_view terminal = variable("TERM"), integration = variable("CI");
  return is_terminal(fd) && !terminal.empty() && terminal != "dumb" &&
         (integration.empty() || integration == "0" || integration == "false");
}

bool shows_colours(int fd) { return can_overwrite(fd) && variable("NO_COLOR").empty(); }

std::size_t columns_of_terminal(int fd) {
  std::size_t columns = 0, told = 0;
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  const std::string_view text = variable("COLUMNS");
  std::from_chars(text.data(), text.data() + text.size(), told);
  if (columns == 0 || told == 0)
    columns = std::max(columns, told);
  else
    columns = std::min(columns, told);
  return columns > 0 ? columns : 80;
}

std::size_t columns_of_lines(int fd) { return is_terminal(fd) ? columns_of_terminal(fd) : any_length; }

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) columns += width(take(text).code);
  return columns;
}

std::string cut(std::string_view text, std::size_t columns) {
  if (columns_of(text) <= columns) return std::string(text);
  if (columns == 0) return "";
  return std::string(text.substr(0, fitting(text, columns - 1))) + "…";
}

std::vector<std::string> wrapped(std::string_view text, std::size_t columns, std::size_t indent) {
  std::vector<std::string> lines;
  std::size_t hung = 0;
  const auto add = [&](std::string_view line) {
    line = line.substr(0, line.find_last_not_of(' ') + 1);
    lines.push_back(std::string(line.empty() ? 0 : hung, ' ').append(line));
    hung = indent;
  };
  while (columns_of(text) > columns - hung) {
    std::size_t end = std::max<std::size_t>(fitting(text, columns - hung), 1);
    if (text[end] != ' ') {
      const std::size_t blank = text.rfind(' ', end), word = text.find_first_not_of(' ');
      if (blank != text.npos && blank > word) end = blank;
    }
    add(text.substr(0, end));
    text.remove_prefix(end);
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  }
  if (!text.empty() || lines.empty()) add(text);
  return lines;
}

std::string fitted(std::string_view text, std::size_t columns) {
  std::string whole;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (columns_of(line) > columns) {
      const std::size_t indent = indent_of(line, columns);
      while (line.starts_with(' ') && line.find_first_not_of(' ') > indent) line.remove_prefix(1);
      whole += fmt::format("{}", fmt::join(wrapped(line, columns, indent), "\n"));
    } else {
      whole += line;
    }
    if (end < text.size()) whole += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return whole;
}

std::string printable(std::string_view text) {
  using nlohmann::json;
  const std::string written = json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  const auto utf8 = json::parse(written).get<std::string>();
  std::string plain;
  for (std::string_view rest = utf8; !rest.empty();) {
    const Character next = take(rest);
    if (in(controls, next.code)) {
      plain += ' ';
    } else {
      plain += next.bytes;
    }
  }
  return plain;
}

}  // namespace distattn::cli
