#include "kernels/vector/launch.hpp"

#include <atomic>

namespace distattn::kernels::vector {

void launch_on_team(Team& team, std::int64_t count, const StopFlag& stop, ErasedItem item, void* context) {
  std::atomic<std::int64_t> next{0};
  team.run([&](int thread) {
    for (std::int64_t i; !stop.load(std::memory_order_relaxed) && (i = next.fetch_add(1)) < count;) {
      item(context, thread, i);
    }
  });
}

}  // namespace distattn::kernels::vector
