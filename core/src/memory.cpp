#include "distattn/memory.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace distattn {
namespace {

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

/// The file says "max", or is missing, where there is no limit.
std::int64_t group_limit() {
  std::int64_t limit = 0;
  return std::ifstream("/sys/fs/cgroup/memory.max") >> limit ? limit : unlimited;
}

std::int64_t address_space_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur >= static_cast<rlim_t>(unlimited)) return unlimited;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

}  // namespace

std::int64_t physical_memory_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? static_cast<std::int64_t>(pages) * page_bytes : 0;
}

std::int64_t usable_memory_bytes() {
  const std::int64_t physical = physical_memory_bytes();
  return std::min({physical > 0 ? physical : unlimited, group_limit(), address_space_limit()});
}

}  // namespace distattn
