#pragma once
/// What the control groups of this process (cgroups, versions 1 and 2 and both at once) allow it.

#include <cstdint>
#include <filesystem>
#include <limits>
#include <vector>

#include "distattn/host_resources.hpp"

namespace distattn {

struct GroupLimits {
  static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

  double processors = std::numeric_limits<double>::infinity();  ///< worth of time
  std::int64_t memory_bytes = unlimited;
  std::vector<ControlGroup> groups;  ///< those that limit anything; caches that can be dropped count as free
};

/// The least of all groups from the process's own to the highest that can be seen, and each by itself. `root` stands
/// for "/", so that tests can bring their own /proc and /sys.
GroupLimits group_limits(const std::filesystem::path& root = "/");

}  // namespace distattn
