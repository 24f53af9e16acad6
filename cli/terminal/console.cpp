#include "cli/terminal/console.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/terminal/terminal.hpp"

namespace distattn::cli {
namespace {

std::optional<Verbosity> chosen_verbosity;

std::mutex writing;                // the thread that waits for signals writes too
std::size_t progress_columns = 0;  // of the line that stands on the terminal

/// Notes about options, until it is known whether they are wanted.
std::vector<std::pair<std::string, Verbosity>>& early_notes() {
  static std::vector<std::pair<std::string, Verbosity>> notes;
  return notes;
}

/// Where stderr takes nothing, there is nobody to tell, and the exit code still says how it went.
void write_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

/// The last column stays free: some terminals begin a line as soon as it is written to.
std::size_t room_for_progress() { return columns_of_terminal(STDERR_FILENO) - 1; }

void clear_progress() {
  constexpr std::size_t typed = 2;  // "^C", which the terminal has put behind it
  if (progress_columns == 0) return;
  const std::size_t columns = std::min(progress_columns + typed, room_for_progress());
  write_stderr("\r" + std::string(columns, ' ') + "\r");
  progress_columns = 0;
}

/// What was given may be of any length, and what is wrong with it is said at the end.
std::string without_middle(const std::string& text) {
  constexpr std::size_t columns_before = 1600, bytes_behind = 400;
  if (columns_of(text) <= columns_before + bytes_behind) return text;
  std::size_t behind = text.size() - bytes_behind;
  while ((static_cast<unsigned char>(text[behind]) & 0xc0u) == 0x80u) ++behind;  // within a character
  return cut(text, columns_before) + text.substr(behind);
}

/// Lines of their own, which fit a terminal; elsewhere one, which programs read. `coloured`: how many letters at its
/// beginning are red.
void write_message(const std::string& text, std::size_t coloured = 0) {
  const std::lock_guard lock(writing);
  clear_progress();
  std::string lines = fitted(text, columns_of_lines(STDERR_FILENO));
  if (coloured > 0 && lines.compare(0, coloured, text, 0, coloured) == 0)
    lines = "\x1b[31m" + lines.substr(0, coloured) + "\x1b[0m" + lines.substr(coloured);
  write_stderr(lines + "\n");
}

}  // namespace

void set_verbosity(Verbosity verbosity) {
  chosen_verbosity = verbosity;
  for (const auto& [text, least] : std::exchange(early_notes(), {})) note(text, least);
}
Verbosity verbosity() { return chosen_verbosity.value_or(Verbosity::normal); }

void note(std::string_view text, Verbosity least) {
  if (!chosen_verbosity) {
    early_notes().emplace_back(text, least);
  } else if (*chosen_verbosity >= least) {
    write_message(printable(text));
  }
}

void note_once(std::string_view text) {
  static std::set<std::string, std::less<>> noted;
  if (noted.emplace(text).second) note(text);
}

void print_error(std::string_view message) {
  constexpr std::string_view name = "distattn:";
  write_message(fmt::format("{} {}", name, without_middle(printable(message))),
                shows_colours(STDERR_FILENO) ? name.size() : 0);
}

Progress::Progress() : terminal_(verbosity() >= Verbosity::normal && can_overwrite(STDERR_FILENO)) {}
Progress::~Progress() { done(); }

void Progress::show(std::string_view text) {
  if (!terminal_) return note(text, Verbosity::verbose);
  const std::lock_guard lock(writing);
  const std::size_t room = room_for_progress();
  const std::string line = cut(printable(text), room);
  const std::size_t columns = columns_of(line);
  progress_columns = std::min(std::max(progress_columns, columns), room);  // blanks over what was longer stay in it
  write_stderr("\r" + line + std::string(progress_columns - columns, ' '));
}

void Progress::done() {
  const std::lock_guard lock(writing);
  clear_progress();
}

}  // namespace distattn::cli
