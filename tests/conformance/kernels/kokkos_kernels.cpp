/// The kernels of cpu, launched by Kokkos: the same bits.

#include "catch.hpp"
#include "conformance/kernels/suite.hpp"
#include "kernels/portable/vector_launch.hpp"

using namespace distattn;
using namespace distattn::test;

TEST_CASE("vector kernels launched by Kokkos conform", "[kokkos]") {
  const HostKernels& table = kernels::kokkos_kernels();
  check_against_float64(
      table, random_cases(20240611, 60),
      {{[](const TileCase& tile) { return tile.shape.dtype == DType::fp64; }, "vector kernels compute in fp32"}});
  check_thread_counts(table, random_cases(20240612, 20));
  check_allocations(table);
}
