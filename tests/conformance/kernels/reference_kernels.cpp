/// The reference kernels against themselves in float64.

#include "catch.hpp"
#include "conformance/kernels/suite.hpp"

using namespace distattn;
using namespace distattn::test;

TEST_CASE("reference kernels conform", "[reference]") {
  constexpr unsigned seed = 20240611;
  const auto& table = kernels::reference_kernels();
  check_against_float64(table, named_cases(), {});
  check_against_float64(table, random_cases(seed, 40), {});
  check_thread_counts(table, random_cases(seed, 10));
  check_spread_rows(table, random_cases(seed, 20));
  check_reach_of_nan(table);
  check_empty_rows(table);
  check_allocations(table);
}

TEST_CASE("reference kernels round well", "[reference][again]") {
  const auto& table = kernels::reference_kernels();
  check_long_sums(table);
  check_common_keys(table);
  check_large_carries(table);
  check_lone_keys(table);
  check_lone_dropped(table);
  check_tiny_values(table);
}
