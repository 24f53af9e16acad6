/// The portable kernels on every host space of this Kokkos, against float64.

#include <Kokkos_Core.hpp>
#include <string_view>

#include "catch.hpp"
#include "conformance/kernels/suite.hpp"
#include "kernels/portable/runtime.hpp"
#include "kernels/portable/spaces.hpp"

using namespace distattn;
using namespace distattn::test;

namespace {

constexpr unsigned seed = 20240611;

/// One for each host space of this Kokkos, which is given as many threads as any test asks for.
std::vector<const HostKernels*> tables() {
  kernels::portable::need_kokkos(4);
  return {DISTATTN_PORTABLE_TABLES};
}

/// Of a launch that does nothing: on its Threads Kokkos makes texts of who waits for whom, which nobody reads.
std::size_t allocations_of_a_launch(const HostKernels& table) {
  if (std::string_view(table.name) != "kokkos:threads") return 0;
  std::size_t allocated = 0;
  kernels::portable::on_kokkos_thread(
      [](void* into) {
        using Policy = Kokkos::TeamPolicy<Kokkos::DefaultHostExecutionSpace>;  // Threads, where Kokkos has them
        const auto launch = [] { Kokkos::parallel_for("nothing", Policy(1, 1), [](const Policy::member_type&) {}); };
        launch();
        *static_cast<std::size_t*>(into) = allocations_of(launch);
      },
      &allocated);
  return allocated;
}

}  // namespace

TEST_CASE("portable kernels conform", "[portable]") {
  for (const HostKernels* table : tables()) {
    check_against_float64(*table, named_cases(), {});
    check_against_float64(*table, random_cases(seed, 200), {});
    check_reach_of_nan(*table);
    check_empty_rows(*table);
    check_allocations(*table, allocations_of_a_launch(*table));
  }
}

TEST_CASE("portable kernels round well", "[portable][again]") {
  for (const HostKernels* table : tables()) {
    check_long_sums(*table);
    check_common_keys(*table);
    check_subnormal_halves(*table);
    check_large_carries(*table);
    check_lone_keys(*table);
    check_lone_dropped(*table);
    check_tiny_values(*table);
  }
}

TEST_CASE("portable results do not depend on where rows lie", "[portable][again]") {
  for (const HostKernels* table : tables()) {
    check_spread_rows(*table, named_cases());
    check_spread_rows(*table, random_cases(seed, 100));
  }
}

TEST_CASE("portable results do not depend on the number of threads", "[portable][again]") {
  for (const HostKernels* table : tables()) {
    check_thread_counts(*table, named_cases());
    check_thread_counts(*table, random_cases(seed, 50));
  }
}
