/// The kernels for this processor's vectors against float64, with the instruction set that DISTATTN_ISA names.

#include <iostream>

#include "catch.hpp"
#include "conformance/kernels/suite.hpp"
#include "distattn/error.hpp"
#include "kernels/vector/cpu.hpp"
#include "kernels/vector/select.hpp"

using namespace distattn;
using namespace distattn::test;

namespace {

constexpr unsigned seed = 20240611;

const std::vector<Exclusion> no_fp64{
    {[](const TileCase& tile) { return tile.shape.dtype == DType::fp64; }, "vector kernels compute in fp32"}};

// Says so where the processor lacks the instruction set that is asked for; one that does not exist is a failure.
bool usable() {
  try {
    kernels::vector::vector_kernels();
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::environment) throw;
    std::cout << "SKIPPED: " << error.what() << '\n';
    return false;
  }
}

}  // namespace

TEST_CASE("cpu kernels conform", "[cpu]") {
  if (!usable()) return;
  const auto& table = kernels::cpu_kernels();
  check_against_float64(table, named_cases(), no_fp64);
  check_against_float64(table, random_cases(seed, 200), no_fp64);
  check_reach_of_nan(table);
  check_long_sums(table);
  check_common_keys(table);
  check_subnormal_halves(table);
  check_large_carries(table);
  check_lone_keys(table);
  check_tiny_values(table);
  check_empty_rows(table);
  check_allocations(table);
}

TEST_CASE("cpu results do not depend on where rows lie", "[cpu]") {
  if (!usable()) return;
  check_spread_rows(kernels::cpu_kernels(), named_cases());
  check_spread_rows(kernels::cpu_kernels(), random_cases(seed, 100));
}

TEST_CASE("cpu results do not depend on the number of threads", "[cpu][threads]") {
  if (!usable()) return;
  check_thread_counts(kernels::cpu_kernels(), named_cases());
  check_thread_counts(kernels::cpu_kernels(), random_cases(seed, 50));
}
