#include "cli/tools/peak.hpp"

#include "catch.hpp"

using namespace distattn;

TEST_CASE("a peak is known for every element type") {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
    PeakMeter meter(dtype, 2);
    INFO(name_of(dtype) << ": " << meter.instruction() << ", " << meter.flops_per_s() / 1e9 << " GFLOP/s");
    const double first = meter.flops_per_s();
    CHECK(first > 1e8);
    CHECK_FALSE(meter.instruction().empty());
    meter.measure();
    CHECK(meter.flops_per_s() >= first);
  }
}
