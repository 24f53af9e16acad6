#include "memory.hpp"

#include <fmt/format.h>

#include "distattn/error.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/words.hpp"

namespace distattn::cli {

void require_memory(const MemoryNeed& need, std::string_view what) {
  const HostResources host = host_resources();
  struct Bound {
    double needed;
    std::int64_t free;
    const char* whose;
  };
  for (const auto& [needed, free, whose] :
       {Bound{need.node, host.physical_free_bytes, "the machine has"},
        Bound{need.node, host.group_free_bytes, "the limit of its control group leaves"},
        Bound{need.process, host.process_free_bytes, "ulimit -v or -d leaves it"}}) {
    if (needed <= static_cast<double>(free)) continue;
    throw Error(ErrorKind::environment,
                fmt::format("{} needs {} of memory ({} {}) make the problem smaller", what, bytes_in_words(needed),
                            whose, bytes_in_words(static_cast<double>(free))));
  }
}

}  // namespace distattn::cli
