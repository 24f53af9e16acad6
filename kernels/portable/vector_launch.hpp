#pragma once
/// The vector kernels, launched by Kokkos.

#include "kernels/kernels.hpp"

namespace distattn::kernels {

/// The kernels of cpu_kernels(), whose items run in Kokkos's Serial space on the threads of a team.
const HostKernels& kokkos_kernels();

}  // namespace distattn::kernels
