#pragma once
/// Kokkos under a team: the only place that includes it.

#include <cstdint>
#include <string>

#include "kernels/arguments.hpp"
#include "kernels/team.hpp"

namespace distattn::kernels::kokkos {

/// Version of Kokkos that this was built with, and its host execution space.
std::string kokkos_version();

namespace detail {
using ErasedItem = void (*)(void* context, int thread, std::int64_t item);
void launch(Team& team, std::int64_t count, const StopFlag& stop, ErasedItem item, void* context);
}  // namespace detail

/// Calls item(thread, i) for 0 ≤ i < count, each once, by Kokkos::parallel_for on the threads of `team`: items are
/// begun in order, each by the next thread that is free. After `stop` no item is begun. Initialises Kokkos when nobody
/// has.
template <class Item>
void launch(Team& team, std::int64_t count, const StopFlag& stop, Item&& item) {
  detail::launch(
      team, count, stop,
      [](void* context, int thread, std::int64_t i) {
        (*static_cast<std::remove_reference_t<Item>*>(context))(thread, i);
      },
      &item);
}

}  // namespace distattn::kernels::kokkos
