#pragma once
/// How much memory this process may use.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace distattn {

/// What the machine has and `ulimit -v` allows; where neither is told, more than any machine has.
inline std::int64_t usable_memory_bytes() {
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
  const long pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) bytes = static_cast<std::int64_t>(pages) * page_bytes;
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur >= static_cast<rlim_t>(bytes)) return bytes;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

}  // namespace distattn
