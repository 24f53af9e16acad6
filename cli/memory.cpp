#include "memory.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "distattn/error.hpp"
#include "distattn/words.hpp"
#include "output.hpp"

namespace distattn::cli {
namespace {

constexpr double unlimited = std::numeric_limits<double>::infinity();

/// "MemAvailable:  123 kB" of /proc/meminfo, in bytes.
double machine_memory() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string name; meminfo >> name;) {
    double value = 0;
    if (name == "MemAvailable:" && meminfo >> value) return value * 1024;
    meminfo.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return unlimited;
}

/// The control group's limit; the file says "max" or is missing where there is none.
double group_memory() {
  double limit = 0;
  return std::ifstream("/sys/fs/cgroup/memory.max") >> limit ? limit : unlimited;
}

double address_space() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ? unlimited
                                                                                : static_cast<double>(limit.rlim_cur);
}

}  // namespace

double available_memory() { return std::min({machine_memory(), group_memory(), address_space()}); }

void require_memory(double bytes, std::string_view what) {
  const double available = available_memory();
  if (bytes <= available) return;
  throw Error(ErrorKind::environment, fmt::format("{} needs {} of memory ({} are available) make the problem smaller",
                                                  what, bytes_in_words(bytes), bytes_in_words(available)));
}

}  // namespace distattn::cli
