#pragma once
/// Standard error: progress, notes and the one line of an error. Results go to standard output through output.hpp.

#include <cstdint>
#include <string_view>

namespace distattn::cli {

enum class Verbosity : std::uint8_t { quiet, normal, verbose };

/// Set by main, when the command line is read: notes of before wait for it.
void set_verbosity(Verbosity verbosity);
Verbosity verbosity();

/// A line on stderr, which a terminal shows as several if it is too long, unless quieter than `least`.
void note(std::string_view text, Verbosity least = Verbosity::normal);
/// The same, unless this text was noted before.
void note_once(std::string_view text);

/// "distattn: message" on one line whatever the message holds, but where a terminal is narrower; red where it shows
/// colours.
void print_error(std::string_view message);

/// A line that is overwritten by the next on a terminal, which it does not fill; done() and messages clear it.
/// Elsewhere a note, where more are asked for.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(std::string_view text);
  void done();

 private:
  bool terminal_;
};

}  // namespace distattn::cli
