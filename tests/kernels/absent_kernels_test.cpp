#include "catch.hpp"
#include "distattn/error.hpp"
#include "kernels/vector/select.hpp"

using namespace distattn;
using namespace distattn::kernels;

TEST_CASE("instruction sets that were left out of a build are chosen by nobody") {
  for (const auto& set : vector::instruction_sets()) {
    CAPTURE(set.name);
    CHECK(set.kernels == nullptr);
    CHECK(set.pairs == nullptr);
    CHECK_THAT(set.why_not, contains_text("DISTATTN_CPU_KERNELS=NATIVE"));
  }
  CHECK(vector::instruction_sets().back().name == "generic");
}

TEST_CASE("a build without a set that this processor has says how to build one") {
  CHECK_THROWS_WITH(vector::vector_kernels(), contains_text("CPU kernels cannot run here") &&
                                                  contains_text("build with DISTATTN_CPU_KERNELS=ALL"));
}
