#pragma once
/// Instances of Kokkos's OpenMP, each with threads of its own.

#include <omp.h>

#include "distattn/host_resources.hpp"
#include "kernels/portable/instance.hpp"

namespace distattn::kernels::portable {

template <>
inline constexpr bool has_instances<Kokkos::OpenMP> = true;
template <>
inline constexpr int most_threads<Kokkos::OpenMP> = most_openmp_threads;
/// In a parallel region of the program Kokkos takes the region's threads for its own, or ends the program. In a child
/// that was forked the thread that forked waits for OpenMP's threads for ever; others start new ones.
template <>
inline bool is_unfit<Kokkos::OpenMP>() {
  return omp_get_level() > 0 || was_forked();
}
/// Every instance's threads are bound from the first place on, so that ranks of a process would share few processors.
template <>
inline void begin_on_thread<Kokkos::OpenMP>() {
  thread_local bool has_left = false;
  if (!has_left) leave_openmp_place();
  has_left = true;
}
template <>
inline Kokkos::OpenMP new_instance<Kokkos::OpenMP>(int threads) {
  expect_room_for(threads);
  return Kokkos::OpenMP(threads);
}

}  // namespace distattn::kernels::portable
