#include "cli/run/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/src/format.hpp"
#include "distattn/error.hpp"
#include "distattn/host_resources.hpp"

namespace distattn::cli {

void require_memory(World& world, const std::function<double(int ranks)>& bytes_of, std::string_view what) {
  const HostResources host = host_resources();
  struct Bound {
    int ranks;
    std::int64_t free;
    const char* whose;
  };
  std::vector<Bound> bounds = {{world.ranks_on_machine(), host.physical_free_bytes, "the machine has"}};
  for (const ControlGroup& group : host.groups) {
    bounds.push_back({world.ranks_in(group), group.free_bytes, "the limit of its control group leaves"});
  }
  bounds.push_back({world.in_process() ? world.size() : 1, host.process_free_bytes, "ulimit -v or -d leaves it"});
  for (const auto& [ranks, free, whose] : bounds) {
    const double needed = bytes_of(ranks);
    if (needed <= static_cast<double>(free)) continue;
    throw Error(ErrorKind::environment,
                fmt::format("{} needs {} of memory ({} {}): make the problem smaller", what, format_bytes(needed),
                            whose, format_bytes(static_cast<double>(free))));
  }
  world.all_gather({});
}

std::int64_t memory_of_rank(const World& world) {
  const HostResources host = host_resources();
  constexpr std::int64_t unlimited = HostResources::unlimited;
  std::int64_t bytes = host.process_bytes;
  if (bytes < unlimited && world.in_process()) bytes /= world.size();
  if (host.physical_bytes > 0) bytes = std::min(bytes, host.physical_bytes / world.ranks_on_machine());
  for (const ControlGroup& group : host.groups) {
    if (group.memory_bytes < unlimited) bytes = std::min(bytes, group.memory_bytes / world.ranks_in(group));
  }
  return bytes;
}

}  // namespace distattn::cli
