#include "console.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace distattn::cli {
namespace {

Verbosity chosen_verbosity = Verbosity::normal;

bool colours() {
  const char* const no_color = std::getenv("NO_COLOR");
  return ::isatty(STDERR_FILENO) != 0 && (no_color == nullptr || *no_color == '\0');
}

/// File names, tensor names and what stands in files may hold anything; a terminal must not see it.
std::string on_one_line(std::string_view text) {
  using nlohmann::json;
  const std::string as_utf8 = json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  std::string line = json::parse(as_utf8).get<std::string>();
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return line;
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
  const bool colour = colours();
  write_stderr(
      fmt::format("{}distattn:{} {}\n", colour ? "\x1b[31m" : "", colour ? "\x1b[0m" : "", on_one_line(message)));
}

Progress::Progress() : terminal_(chosen_verbosity >= Verbosity::normal && ::isatty(STDERR_FILENO) != 0) {}
Progress::~Progress() { done(); }

void Progress::show(std::string_view text) {
  if (!terminal_) return note(text, Verbosity::verbose);
  write_stderr("\r\x1b[K" + on_one_line(text));
  shown_ = true;
}

void Progress::done() {
  if (shown_) write_stderr("\r\x1b[K");
  shown_ = false;
}

}  // namespace distattn::cli
