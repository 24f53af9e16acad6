#include "console.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <string>

#include "terminal.hpp"

namespace distattn::cli {
namespace {

Verbosity chosen_verbosity = Verbosity::normal;

/// File names, tensor names and what stands in files may hold anything; a terminal must not see it.
std::string on_one_line(std::string_view text) {
  using nlohmann::json;
  const std::string as_utf8 = json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  return without_controls(json::parse(as_utf8).get<std::string>());
}

/// Where stderr takes nothing, there is nobody to tell, and the exit code still says how it went.
void write_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

void set_verbosity(Verbosity verbosity) { chosen_verbosity = verbosity; }
Verbosity verbosity() { return chosen_verbosity; }

void note(std::string_view text, Verbosity least) {
  if (chosen_verbosity >= least) write_stderr(on_one_line(text) + "\n");
}

void print_error(std::string_view message) {
  const bool colour = shows_colours(STDERR_FILENO);
  write_stderr(
      fmt::format("{}distattn:{} {}\n", colour ? "\x1b[31m" : "", colour ? "\x1b[0m" : "", on_one_line(message)));
}

Progress::Progress() : terminal_(chosen_verbosity >= Verbosity::normal && can_overwrite(STDERR_FILENO)) {}
Progress::~Progress() { done(); }

void Progress::show(std::string_view text) {
  if (!terminal_) return note(text, Verbosity::verbose);
  // The last column stays free: some terminals begin a line as soon as it is written to.
  const std::size_t room = columns_of_terminal(STDERR_FILENO) - 1;
  const std::string line = cut(on_one_line(text), room);
  const std::size_t columns = columns_of(line);
  const std::size_t rest = std::min(std::max(shown_, columns), room) - columns;
  write_stderr("\r" + line + std::string(rest, ' '));
  shown_ = columns;
}

void Progress::done() {
  if (shown_ > 0) {
    const std::size_t columns = std::min(shown_, columns_of_terminal(STDERR_FILENO) - 1);
    write_stderr("\r" + std::string(columns, ' ') + "\r");
  }
  shown_ = 0;
}

}  // namespace distattn::cli
