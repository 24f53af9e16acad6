/// Every table of host kernels against float64.

#include "catch.hpp"
#include "conformance/kernels/suite.hpp"

using namespace distattn;
using namespace distattn::test;

namespace {

constexpr unsigned seed = 20240611;

const std::vector<Exclusion> no_fp64{
    {[](const TileCase& tile) { return tile.shape.dtype == DType::fp64; }, "vector kernels compute in fp32"}};

}  // namespace

TEST_CASE("reference kernels conform") {
  const auto& table = kernels::reference_kernels();
  check_against_float64(table, named_cases(), {});
  check_against_float64(table, random_cases(seed, 40), {});
  check_reach_of_nan(table);
  check_empty_rows(table);
  check_allocations(table);
}

TEST_CASE("kokkos kernels conform") {
  const auto& table = kernels::kokkos_kernels();
  check_against_float64(table, named_cases(), no_fp64);
  check_against_float64(table, random_cases(seed, 200), no_fp64);
  check_reach_of_nan(table);
  check_empty_rows(table);
  check_allocations(table);
}

TEST_CASE("results do not depend on the number of threads") {
  check_thread_counts(kernels::reference_kernels(), random_cases(seed, 10));
  check_thread_counts(kernels::kokkos_kernels(), named_cases());
  check_thread_counts(kernels::kokkos_kernels(), random_cases(seed, 50));
}
