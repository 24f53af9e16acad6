#include "distattn/host_resources.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "core/src/control_groups.hpp"
#include "core/src/openmp_places.hpp"

namespace distattn {
namespace {

constexpr std::int64_t unlimited = HostResources::unlimited;

/// The kernel refuses a set that is smaller than its own, which may have many more than the 1024 of cpu_set_t.
ProcessorSet affinity() {
  constexpr std::size_t most_words = 1 << 14;
  for (std::size_t words = 16; words <= most_words; words *= 2) {
    ProcessorSet set(words, 0);
    if (::sched_getaffinity(0, words * sizeof(std::uint64_t), reinterpret_cast<cpu_set_t*>(set.data())) == 0)
      return set;
    if (errno != EINVAL) break;
  }
  return {};
}

/// The processors of this process, of all places of OpenMP.
ProcessorSet own_processors() { return beyond_place(affinity(), openmp_places()); }

std::int64_t limit_of(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return unlimited;
  return limit.rlim_cur >= static_cast<rlim_t>(unlimited) ? unlimited : static_cast<std::int64_t>(limit.rlim_cur);
}

/// "Name:  123 kB" of a file of /proc, in bytes.
std::int64_t kilobytes_in(const char* path, const std::string& name, std::int64_t otherwise) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::int64_t value = 0;
    if (word == name + ":" && file >> value) return value * 1024;
    file.clear();
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return otherwise;
}

void add_memory(HostResources& host) {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) host.physical_bytes = static_cast<std::int64_t>(pages) * page_bytes;
  host.physical_free_bytes = kilobytes_in("/proc/meminfo", "MemAvailable", unlimited);
  struct Limit {
    int resource;
    const char* used;
  };
  for (const auto [resource, used] : {Limit{RLIMIT_AS, "VmSize"}, Limit{RLIMIT_DATA, "VmData"}}) {
    const std::int64_t limit = limit_of(resource);
    if (limit == unlimited) continue;
    host.process_bytes = std::min(host.process_bytes, limit);
    const std::int64_t left = limit - kilobytes_in("/proc/self/status", used, 0);
    host.process_free_bytes = std::min(host.process_free_bytes, std::max<std::int64_t>(0, left));
  }
}

}  // namespace

int HostResources::cores() const {
  int count = 0;
  for (const std::uint64_t word : processors) count += std::popcount(word);
  if (quota < count) count = static_cast<int>(quota);
  return std::max(1, count);
}

std::int64_t HostResources::memory_bytes() const {
  return std::min({physical_bytes > 0 ? physical_bytes : unlimited, group_bytes, process_bytes});
}

HostResources host_resources() {
  HostResources host;
  host.processors = own_processors();
  GroupLimits limits = group_limits();
  host.quota = limits.processors;
  host.group_bytes = limits.memory_bytes;
  host.groups = std::move(limits.groups);
  add_memory(host);
  return host;
}

int usable_cores() {
  // Every loop that may take threads asks. Files of control groups take longer to read than a short loop to run.
  using Clock = std::chrono::steady_clock;
  struct Quota {
    double processors;
    Clock::time_point read;
  };
  thread_local std::optional<Quota> known;  // a lock might be held when the process is forked
  HostResources host;
  host.processors = own_processors();
  if (!known || Clock::now() - known->read > std::chrono::seconds(1))
    known = Quota{group_limits().processors, Clock::now()};
  host.quota = known->processors;
  return host.cores();
}
std::int64_t usable_memory_bytes() { return host_resources().memory_bytes(); }

void leave_openmp_place() noexcept {
  try {
    const ProcessorSet bound = affinity(), all = beyond_place(bound, openmp_places());
    if (all == bound) return;
    ::sched_setaffinity(0, all.size() * sizeof(std::uint64_t), reinterpret_cast<const cpu_set_t*>(all.data()));
  } catch (...) {  // no memory to find out: it stays where it is
  }
}

}  // namespace distattn
