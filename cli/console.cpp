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

}  // namespace

void set_verbosity(Verbosity verbosity) { chosen_verbosity = verbosity; }
Verbosity verbosity() { return chosen_verbosity; }

void note(std::string_view text, Verbosity least) {
  if (chosen_verbosity >= least) fmt::print(stderr, "{}\n", on_one_line(text));
}

void print_error(std::string_view message) {
  const bool colour = colours();
  fmt::print(stderr, "{}distattn:{} {}\n", colour ? "\x1b[31m" : "", colour ? "\x1b[0m" : "", on_one_line(message));
}

Progress::Progress() : terminal_(chosen_verbosity >= Verbosity::normal && ::isatty(STDERR_FILENO) != 0) {}
Progress::~Progress() { done(); }

void Progress::show(std::string_view text) {
  if (!terminal_) return note(text, Verbosity::verbose);
  fmt::print(stderr, "\r\x1b[K{}", on_one_line(text));
  std::fflush(stderr);
  shown_ = true;
}

void Progress::done() {
  if (shown_) fmt::print(stderr, "\r\x1b[K");
  shown_ = false;
}

}  // namespace distattn::cli
