#include "kernels/kokkos/launch.hpp"

#include <Kokkos_Core.hpp>
#include <atomic>
#include <cstdlib>
#include <mutex>

namespace distattn::kernels::kokkos {

namespace {

void initialize_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (Kokkos::is_initialized()) return;
    int no_arguments = 0;
    Kokkos::initialize(no_arguments, nullptr);
    std::atexit([] {
      if (Kokkos::is_initialized()) Kokkos::finalize();
    });
  });
}

// Kokkos ≥ 4.1 serialises what runs in one instance of an execution space; each thread therefore has its own.
Kokkos::Serial instance_of_this_thread() {
#if KOKKOS_VERSION >= 40100
  return Kokkos::Serial(Kokkos::NewInstance{});
#else
  return Kokkos::Serial();
#endif
}

}  // namespace

std::string kokkos_version() {
  return std::to_string(KOKKOS_VERSION / 10000) + "." + std::to_string(KOKKOS_VERSION / 100 % 100) + "." +
         std::to_string(KOKKOS_VERSION % 100);
}

void detail::launch(Team& team, std::int64_t count, const StopFlag& stop, ErasedItem item, void* context) {
  initialize_once();
  std::atomic<std::int64_t> next{0};
  team.run([&](int thread) {
    const Kokkos::Serial space = instance_of_this_thread();
    for (std::int64_t i; !stop.load(std::memory_order_relaxed) && (i = next.fetch_add(1)) < count;) {
      Kokkos::parallel_for("distattn", Kokkos::RangePolicy<Kokkos::Serial, std::int64_t>(space, i, i + 1),
                           [=](std::int64_t mine) { item(context, thread, mine); });
    }
  });
}

}  // namespace distattn::kernels::kokkos
