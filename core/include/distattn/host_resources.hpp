#pragma once
/// What this process may use of its machine: processors and memory. Read anew in every call. Any thread.

#include <cstdint>
#include <limits>
#include <vector>

#pragma GCC visibility push(default)
namespace distattn {

/// Processors by the kernel's numbers: bit i % 64 of word i / 64 is set for processor i. Words of zeros at the end
/// count for nothing.
using ProcessorSet = std::vector<std::uint64_t>;

/// One of the control groups (cgroup v1, v2) that hold a process, with all others below it.
struct ControlGroup {
  std::uint64_t device = 0, inode = 0;  ///< of its folder: name it on this machine, also to other containers
  /// Processors' worth of time that it grants all its processes together. Infinity without a quota.
  double quota = std::numeric_limits<double>::infinity();
  std::int64_t free_bytes = std::numeric_limits<std::int64_t>::max();  ///< of memory, that it leaves them now
};

struct HostResources {
  static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

  ProcessorSet processors;  ///< those that its threads may run on: its affinity, which a cpuset narrows too
  /// Processors' worth of time that its control groups grant it: the least on the way from its own group to the root.
  /// Infinity without a quota.
  double quota = std::numeric_limits<double>::infinity();
  /// All of them that have a quota or a limit of memory, the process's own first. Each counts for those whom it holds.
  std::vector<ControlGroup> groups;

  std::int64_t physical_bytes = 0;               ///< memory of the machine; 0: the system does not tell
  std::int64_t physical_free_bytes = unlimited;  ///< free, or held by caches that can be dropped
  std::int64_t group_bytes = unlimited;          ///< most that its control groups allow all their processes together
  std::int64_t process_bytes = unlimited;        ///< most that it may map (`ulimit -v`, `ulimit -d`)
  std::int64_t process_free_bytes = unlimited;   ///< what that leaves now

  /// Threads that can compute at once: its processors, and no more than its quota rounded down, because a thread beyond
  /// that stops all of them for the rest of every period. At least 1.
  int cores() const;
  /// The least of physical_bytes and all limits.
  std::int64_t memory_bytes() const;
};

HostResources host_resources();

/// The same two figures alone.
int usable_cores();
std::int64_t usable_memory_bytes();

}  // namespace distattn
#pragma GCC visibility pop
