#include <vector>

#include "catch.hpp"
#include "distattn/simulate.hpp"
#include "unit/sketch_builder.hpp"

using namespace distattn;
using distattn::test::SketchBuilder;

namespace {

double idle_of(const std::vector<ProgramSketch>& ranks) { return ideal_idle(ranks); }

}  // namespace

TEST_CASE("ranks that never wait are never idle", "[ideal_idle]") {
  CHECK(idle_of({SketchBuilder(0).compute(1, 5), SketchBuilder(1).compute(1, 5)}) == 0);
}

TEST_CASE("a program without tiles has no idle time", "[ideal_idle]") {
  CHECK(idle_of({SketchBuilder(0).receive(0, {})}) == 0);
  CHECK(idle_of({}) == 0);
}

TEST_CASE("a rank with half the work of the other idles half the time", "[ideal_idle]") {
  CHECK(idle_of({SketchBuilder(0).compute(1, 4), SketchBuilder(1).compute(1, 8)}) == Approx(0.25));
}

TEST_CASE("a message arrives when its sender's step begins", "[ideal_idle]") {
  // Rank 0 begins step 2 at 6, so rank 1 ends its own step 2 at 6 instead of 4, and its step 3 at 7.
  const ProgramSketch first = SketchBuilder(0).compute(1, 6).compute(2, 1);
  const ProgramSketch second = SketchBuilder(1).compute(1, 2).compute(2, 2).receive(2, {0}).compute(3, 1);
  CHECK(idle_of({first, second}) == Approx(1 - 12.0 / 14.0));
}

TEST_CASE("a message posted early is waited for where it is due", "[ideal_idle]") {
  // Posted in step 2, which rank 0 begins at 6; rank 1 passes steps 2 and 3 and waits at the end of step 4.
  const ProgramSketch first = SketchBuilder(0).compute(1, 6).compute(2, 1);
  const auto second = [](int due) {
    return SketchBuilder(1).compute(1, 1).receive_early(2, due, {0}).compute(2, 1).compute(3, 1).compute(4, 1);
  };
  CHECK(idle_of({first, second(4)}) == Approx(1 - 11.0 / 14.0));
  CHECK(idle_of({first, second(2)}) == Approx(1 - 11.0 / 16.0));
}

TEST_CASE("the order in which a program lists its steps does not matter", "[ideal_idle]") {
  const ProgramSketch first = SketchBuilder(0).compute(1, 6).compute(2, 1);
  const ProgramSketch by_number = SketchBuilder(1).compute(1, 2).receive(2, {0}).compute(2, 2).compute(3, 1);
  const ProgramSketch by_lane = SketchBuilder(1).receive(2, {0}).compute(1, 2).compute(2, 2).compute(3, 1);
  CHECK(idle_of({first, by_number}) == idle_of({first, by_lane}));
}

TEST_CASE("a causal ring of two ranks idles a quarter of the time in whole tiles", "[ideal_idle]") {
  // Rank 1 needs two steps, rank 0 one: 3 of 4 rank-steps are busy.
  const ProgramSketch first = SketchBuilder(0).receive(0, {}).compute(1, 9).receive(1, {});
  const ProgramSketch second = SketchBuilder(1).receive(0, {}).compute(1, 9).receive(1, {0}).compute(2, 9);
  CHECK(idle_of({first, second}) == Approx(0.25));
}
