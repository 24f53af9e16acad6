#include "distattn/tolerance.hpp"

#include "catch.hpp"

using namespace distattn;

TEST_CASE("the tolerance follows what rounds", "[tolerance]") {
  Problem problem;
  problem.seq_q = problem.seq_kv = 806;
  const double fp32 = tolerance(problem, 4);
  CHECK(fp32 < 5e-6);
  CHECK(fp32 > 1e-6);
  CHECK(tolerance(problem, 8) > fp32);

  Problem longer = problem;
  longer.seq_kv = 1 << 20;
  CHECK(tolerance(longer, 4) > fp32);

  Problem wide = problem;
  wide.dtype = DType::fp64;
  CHECK(tolerance(wide, 4) < 1e-14);

  Problem narrow_wire = problem;
  narrow_wire.wire = DType::bf16;
  CHECK(tolerance(narrow_wire, 4) > 1e-3);
  CHECK(tolerance(narrow_wire, 0) == tolerance(problem, 0));

  Problem half = problem, brain = problem;
  half.dtype = DType::fp16;
  brain.dtype = DType::bf16;
  CHECK(tolerance(half, 4) > fp32);
  CHECK(tolerance(brain, 4) > tolerance(half, 4));
}
