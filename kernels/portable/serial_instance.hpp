#pragma once
/// Instances of Kokkos's Serial, each for one thread.

#include "kernels/portable/instance.hpp"

namespace distattn::kernels::portable {

template <>
inline constexpr bool is_serial<Kokkos::Serial> = true;
#if KOKKOS_VERSION >= 40200
template <>
inline constexpr bool has_instances<Kokkos::Serial> = true;
template <>
inline Kokkos::Serial new_instance<Kokkos::Serial>(int) {
  return Kokkos::Serial{Kokkos::NewInstance{}};
}
#endif

}  // namespace distattn::kernels::portable
