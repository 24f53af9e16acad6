#include "kernels/portable/vector_launch.hpp"

#include <Kokkos_Core.hpp>
#include <atomic>
#include <optional>

#include "kernels/portable/serial_instance.hpp"
#include "kernels/vector/cpu.hpp"

namespace distattn::kernels {

namespace portable {

namespace {

/// One thread's: Kokkos ≥ 4.2 serialises what runs in one instance; before, one serves all threads.
class SerialLaunches {
 public:
  SerialLaunches() {
    if constexpr (has_instances<Kokkos::Serial>) instance_.emplace(1);
  }
  Kokkos::Serial space() const {
    if constexpr (has_instances<Kokkos::Serial>) {
      return instance_->space();
    } else {
      return {};
    }
  }

 private:
  std::optional<Instance<Kokkos::Serial>> instance_;
};

void launch_by_kokkos(Team& team, std::int64_t count, const StopFlag& stop, vector::ErasedItem item, void* context) {
  need_kokkos(team.size());
  std::atomic<std::int64_t> next{0};
  team.run([&](int thread) {
    const SerialLaunches launches;
    const Kokkos::Serial space = launches.space();
    for (std::int64_t i; !stop.load(std::memory_order_relaxed) && (i = next.fetch_add(1)) < count;) {
      Kokkos::parallel_for("distattn", Kokkos::RangePolicy<Kokkos::Serial, std::int64_t>(space, i, i + 1),
                           [=](std::int64_t mine) { item(context, thread, mine); });
    }
  });
}

void attend_by_kokkos(std::span<const AttendArgs> operations, Team& team, const StopFlag& stop) {
  vector::attend(operations, team, stop, launch_by_kokkos);
}
void attend_backward_by_kokkos(std::span<const AttendBackwardArgs> operations, Team& team, const StopFlag& stop) {
  vector::attend_backward(operations, team, stop, launch_by_kokkos);
}

}  // namespace

}  // namespace portable

const HostKernels& kokkos_kernels() {
  static const HostKernels kernels = [] {
    HostKernels same = cpu_kernels();
    same.name = "kokkos";
    same.attend = portable::attend_by_kokkos;
    same.attend_backward = portable::attend_backward_by_kokkos;
    return same;
  }();
  return kernels;
}

}  // namespace distattn::kernels
