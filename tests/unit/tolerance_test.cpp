#include "cli/tools/tolerance.hpp"

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

  Problem usual = problem, flat = problem, steep = problem;
  for (Problem* const scaled : {&usual, &flat, &steep}) scaled->head_dim = 64;
  usual.scores.scale = 0.125;
  flat.scores.scale = 0.01;
  CHECK(tolerance(usual, 4) == fp32);
  CHECK(tolerance(flat, 4) == fp32);
  steep.scores.scale = 0.25;
  CHECK(tolerance(steep, 4) > fp32);
  steep.scores.scale = -2;
  CHECK(tolerance(steep, 4) > 3 * fp32);
  CHECK(tolerance(steep, 4) < 10 * fp32);

  CHECK(tolerance(usual, 4, 0.1) == fp32);
  CHECK(tolerance(usual, 4, 2) == tolerance(problem, 4, 2));
  CHECK(tolerance(usual, 4, 16) == Approx([&] {
          steep.scores.scale = 2;
          return tolerance(steep, 4);
        }()));

  for (const double scale : {1e6, -1e38}) {
    steep.scores.scale = scale;
    CHECK(tolerance(steep, 4) <= 0.5);
  }
  CHECK(tolerance(usual, 4, 1e9) <= 0.5);

  Problem half = problem, brain = problem;
  half.dtype = DType::fp16;
  brain.dtype = DType::bf16;
  CHECK(tolerance(half, 4) > fp32);
  CHECK(tolerance(brain, 4) > tolerance(half, 4));
}
