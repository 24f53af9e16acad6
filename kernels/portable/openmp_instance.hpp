#pragma once
/// Instances of Kokkos's OpenMP, each with threads of its own.

#include "kernels/portable/instance.hpp"

namespace distattn::kernels::portable {

template <>
inline constexpr bool has_instances<Kokkos::OpenMP> = true;
template <>
inline Kokkos::OpenMP new_instance<Kokkos::OpenMP>(int threads) {
  return Kokkos::OpenMP(threads);
}

}  // namespace distattn::kernels::portable
