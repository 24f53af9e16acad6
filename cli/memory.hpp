#pragma once
/// How much memory this process may still take, so that what cannot fit is refused before anything is allocated.

#include <string_view>

namespace distattn::cli {

/// Bytes of what is about to be allocated: by all ranks on this node together, and by this process.
struct MemoryNeed {
  double node, process;
};

/// Throws Error(environment) that says how much `what` needs, and what leaves less than that: the machine, this
/// process's control groups or its own limits.
void require_memory(const MemoryNeed& need, std::string_view what);

}  // namespace distattn::cli
