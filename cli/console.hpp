#pragma once
/// Standard error: progress, notes and the one line of an error. Results go to standard output through output.hpp.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace distattn::cli {

enum class Verbosity : std::uint8_t { quiet, normal, verbose };

/// Set once, by main.
void set_verbosity(Verbosity verbosity);
Verbosity verbosity();

/// A line on stderr, unless quieter than `least`.
void note(std::string_view text, Verbosity least = Verbosity::normal);

/// "distattn: message" on one line whatever the message holds; red where a terminal shows colours.
void print_error(std::string_view message);

/// A line that is overwritten by the next on a terminal, which it does not fill; done() clears it. Elsewhere a note,
/// where more are asked for.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(std::string_view text);
  void done();

 private:
  std::size_t shown_ = 0;  // columns
  bool terminal_;
};

}  // namespace distattn::cli
