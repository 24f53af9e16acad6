#include "distattn/timeline.hpp"

#include <vector>

#include "catch.hpp"

using namespace distattn;

namespace {

constexpr StepId any_step{};

}  // namespace

TEST_CASE("Communication is exposed where an exchange runs and nothing is computed") {
  Timeline timeline;
  timeline.seconds = 10;
  timeline.spans = {
      {0, Lane::compute, any_step, 0, 1, 4},                                     // hides half of the near exchange
      {0, Lane::near, any_step, 0, 2, 6},    {0, Lane::far, any_step, 0, 5, 7},  // beside the near one for a second
      {0, Lane::compute, any_step, 1, 8, 9}, {1, Lane::compute, any_step, 0, 0, 10},
      {1, Lane::near, any_step, 0, 0, 10}};
  CHECK(timeline.exposed_s(2) == 3.0 / 2);
  CHECK(timeline.idle_share(2) == Approx(6.0 / 20));
}

TEST_CASE("Idle without an exchange is not exposed communication") {
  Timeline timeline;
  timeline.seconds = 4;
  timeline.spans = {{0, Lane::compute, any_step, 0, 0, 1}, {0, Lane::compute, any_step, 1, 3, 4}};
  CHECK(timeline.exposed_s(1) == 0);
  CHECK(timeline.idle_share(1) == 0.5);
}

TEST_CASE("Joined timelines keep their distance") {
  const std::vector<Timeline> ranks = {{{{0, Lane::compute, any_step, 0, 0, 1}}, 1},
                                       {{{1, Lane::compute, any_step, 0, 0, 2}}, 2}};
  const std::vector<double> begins_s = {5, 3};
  const Timeline all = join(ranks, begins_s);
  REQUIRE(all.spans.size() == 2);
  CHECK(all.spans[0].start_s == 2);
  CHECK(all.spans[1].end_s == 2);
  CHECK(all.seconds == 3);
}
