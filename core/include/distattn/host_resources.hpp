#pragma once
/// The processors and memory of this machine that the process may use. Read again in every call. Any thread.

#include <cstdint>
#include <limits>
#include <vector>

#pragma GCC visibility push(default)
namespace distattn {

/// Processors by the kernel's numbers: bit i % 64 of word i / 64 is set for processor i. Zero words at the end are
/// ignored.
using ProcessorSet = std::vector<std::uint64_t>;

/// One of the control groups (cgroup v1 or v2) that hold a process. It holds the groups below it too.
struct ControlGroup {
  std::uint64_t device = 0,
                inode = 0;  ///< those of its folder: they identify it on this machine, also for other containers
  /// CPU quota that all of its processes share, in processors. Infinity without a quota.
  double quota = std::numeric_limits<double>::infinity();
  std::int64_t memory_bytes = std::numeric_limits<std::int64_t>::max();  ///< limit that its processes share
  std::int64_t free_bytes = std::numeric_limits<std::int64_t>::max();    ///< what is left of it now
};

struct HostResources {
  static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

  /// Processors that its threads may run on: the calling thread's affinity, already narrowed by cpusets. Where GCC's
  /// OpenMP has bound that thread to one of its places (OMP_PROC_BIND), the processors of all places.
  ProcessorSet processors;
  /// CPU quota of its control groups, in processors: the least from its own group up to the root. Infinity without a
  /// quota.
  double quota = std::numeric_limits<double>::infinity();
  /// All control groups that hold it and have a quota or a memory limit, the process's own first. Each limits the
  /// processes that it holds.
  std::vector<ControlGroup> groups;

  std::int64_t physical_bytes = 0;               ///< memory of the machine; 0: unknown
  std::int64_t physical_free_bytes = unlimited;  ///< free memory, including caches that can be dropped
  std::int64_t group_bytes = unlimited;          ///< least limit of its control groups, shared by all their processes
  std::int64_t process_bytes = unlimited;        ///< address space that it may map (`ulimit -v`, `ulimit -d`)
  std::int64_t process_free_bytes = unlimited;   ///< what is left of it now

  /// Threads that can compute at the same time: the number of its processors, but at most its quota rounded down,
  /// because with more threads all of them are stopped for the rest of each quota period. At least 1.
  int cores() const;
  /// The minimum of physical_bytes and all limits.
  std::int64_t memory_bytes() const;
};

HostResources host_resources();

/// cores() of host_resources(), where the quota may be that of a second ago.
int usable_cores();
/// memory_bytes() of host_resources().
std::int64_t usable_memory_bytes();

/// Lets the calling thread run on the processors of all places if GCC's OpenMP has bound it to one, which happens to
/// the main thread where OMP_PROC_BIND is set and something in the process was built with OpenMP. Threads are bound as
/// the one that starts them.
void leave_openmp_place() noexcept;

}  // namespace distattn
#pragma GCC visibility pop
