#include "memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "distattn/error.hpp"
#include "distattn/memory.hpp"
#include "distattn/words.hpp"
#include "output.hpp"

namespace distattn::cli {
namespace {

/// "MemAvailable:  123 kB" of /proc/meminfo, in bytes.
double free_memory() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string name; meminfo >> name;) {
    double value = 0;
    if (name == "MemAvailable:" && meminfo >> value) return value * 1024;
    meminfo.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::numeric_limits<double>::infinity();
}

}  // namespace

double available_memory() { return std::min(free_memory(), static_cast<double>(usable_memory_bytes())); }

void require_memory(double bytes, std::string_view what) {
  const double available = available_memory();
  if (bytes <= available) return;
  throw Error(ErrorKind::environment, fmt::format("{} needs {} of memory ({} are available) make the problem smaller",
                                                  what, bytes_in_words(bytes), bytes_in_words(available)));
}

}  // namespace distattn::cli
