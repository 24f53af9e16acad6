#pragma once
/// Who hands out the items of a list to the threads of a team: the team itself, or a library that owns threads.

#include <cstdint>
#include <type_traits>

#include "kernels/arguments.hpp"
#include "kernels/team.hpp"

namespace distattn::kernels::vector {

using ErasedItem = void (*)(void* context, int thread, std::int64_t item);

/// Calls item(context, thread, i) for 0 ≤ i < count, each once, on the threads of `team`: items are begun in order,
/// each by the next thread that is free. After `stop` no item is begun.
using Launch = void (*)(Team& team, std::int64_t count, const StopFlag& stop, ErasedItem item, void* context);

/// By the team alone.
void launch_on_team(Team& team, std::int64_t count, const StopFlag& stop, ErasedItem item, void* context);

/// The same for item(thread, i).
template <class Item>
void launch(Launch by, Team& team, std::int64_t count, const StopFlag& stop, Item&& item) {
  by(
      team, count, stop,
      [](void* context, int thread, std::int64_t i) {
        (*static_cast<std::remove_reference_t<Item>*>(context))(thread, i);
      },
      &item);
}

}  // namespace distattn::kernels::vector
