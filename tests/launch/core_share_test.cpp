#include "backends/launch/core_share.hpp"
#include "catch.hpp"
#include "distattn/error.hpp"

using namespace distattn;
using namespace distattn::backends::launch;

namespace {

/// The first `count` processors from `first` on.
ProcessorSet processors(int first, int count) {
  ProcessorSet set(static_cast<std::size_t>(first + count + 63) / 64, 0);
  for (int i = first; i < first + count; ++i) set[static_cast<std::size_t>(i) / 64] |= std::uint64_t{1} << (i % 64);
  return set;
}

CoreClaim claim(ProcessorSet set, const std::string& machine = "here") { return {machine, std::move(set), {}, true}; }

std::vector<int> shares(const std::vector<CoreClaim>& claims) {
  std::vector<int> cores;
  for (std::size_t i = 0; i < claims.size(); ++i) cores.push_back(fair_cores(claims, i));
  return cores;
}

}  // namespace

TEST_CASE("ranks that are bound apart keep all of their processors", "[launch]") {
  CHECK(shares({claim(processors(0, 16)), claim(processors(16, 16)), claim(processors(32, 16))}) ==
        std::vector{16, 16, 16});
  CHECK(shares({claim(processors(0, 3)), claim(processors(1500, 5))}) == std::vector{3, 5});
}

TEST_CASE("ranks that may run on the same processors divide these", "[launch]") {
  CHECK(shares({claim(processors(0, 12)), claim(processors(0, 12)), claim(processors(0, 12))}) == std::vector{4, 4, 4});
  CHECK(shares({claim(processors(0, 2)), claim(processors(0, 2)), claim(processors(0, 2))}) == std::vector{1, 1, 1});
  SECTION("two to a socket") {
    CHECK(shares({claim(processors(0, 8)), claim(processors(0, 8)), claim(processors(8, 8)),
                  claim(processors(8, 8))}) == std::vector{4, 4, 4, 4});
  }
  SECTION("one is bound, one is not") {
    CHECK(shares({claim(processors(0, 4)), claim(processors(0, 16))}) == std::vector{2, 14});
  }
}

TEST_CASE("together, ranks have the processors that any of them may use, and their quotas", "[launch]") {
  CHECK(cores_together(std::vector{claim(processors(0, 3)), claim(processors(8, 5))}, 0) == 8);
  CHECK(cores_together(std::vector(3, claim(processors(0, 12))), 1) == 12);
  CHECK(cores_together(std::vector{claim(processors(0, 4)), claim(processors(0, 16)), claim({}, "there")}, 0) == 16);
  CHECK(cores_together(std::vector{claim(processors(0, 8), "a"), claim(processors(0, 8), "b")}, 1) == 8);
  const CoreClaim limited{"here", processors(0, 64), {ControlGroup{1, 11, 7.5}}, true};
  CHECK(cores_together(std::vector(5, limited), 0) == 7);
}

TEST_CASE("other machines have processors of their own", "[launch]") {
  CHECK(shares({claim(processors(0, 8), "a"), claim(processors(0, 8), "b"), claim(processors(0, 8), "b")}) ==
        std::vector{8, 4, 4});
}

TEST_CASE("processors that a machine does not have are nobody else's", "[launch]") {
  std::vector<CoreClaim> claims(4, claim(processors(0, 16)));
  for (CoreClaim& each : claims) each.places = false;
  CHECK(shares(claims) == std::vector{16, 16, 16, 16});
}

TEST_CASE("a quota is divided among those whom it limits", "[launch]") {
  std::vector<CoreClaim> claims(4, claim(processors(0, 64)));
  for (std::size_t i = 0; i < 4; ++i)
    claims[i] = {"here", processors(0, 64), {i < 3 ? ControlGroup{1, 11, 7.5} : ControlGroup{1, 12, 5.0}}, true};
  CHECK(shares(claims) == std::vector{2, 2, 2, 5});
  claims[2].machine = "there";  // where other groups have these numbers
  CHECK(shares(claims) == std::vector{3, 3, 7, 5});
}

TEST_CASE("a quota is divided too among those that have quotas of their own below it", "[launch]") {
  const auto below_twelve = [](double quota) {
    std::vector<CoreClaim> claims(4, claim(processors(0, 64)));
    for (std::uint64_t i = 0; i < 4; ++i) claims[i].groups = {ControlGroup{1, 20 + i, quota}, ControlGroup{1, 9, 12.0}};
    return claims;
  };
  CHECK(shares(below_twelve(8)) == std::vector{3, 3, 3, 3});
  CHECK(shares(below_twelve(2.5)) == std::vector{2, 2, 2, 2});
  CHECK(count_on_machine(below_twelve(8), 0) == 4);
  CHECK(count_in_group(below_twelve(8), 1, ControlGroup{1, 9}) == 4);
  CHECK(count_in_group(below_twelve(8), 1, ControlGroup{1, 21}) == 1);
  CHECK(count_in_group(below_twelve(8), 1, ControlGroup{2, 9}) == 0);
}

TEST_CASE("a claim travels as bytes", "[launch]") {
  const CoreClaim sent{"machine", processors(70, 3), {ControlGroup{7, 42, 2.5, 2000, 1000}}, false};
  const std::vector<std::byte> bytes = to_bytes(sent);
  const CoreClaim got = claim_from(bytes);
  CHECK(got.machine == sent.machine);
  CHECK(got.processors == sent.processors);
  REQUIRE(got.groups.size() == 1);
  CHECK(got.groups[0].quota == 2.5);
  CHECK(got.groups[0].free_bytes == 1000);
  CHECK_FALSE(got.places);
  CHECK(got.groups[0].device == 7);
  CHECK(got.groups[0].inode == 42);
  CHECK_THROWS_AS(claim_from({}), Error);
  CHECK_THROWS_AS(claim_from(std::span(bytes).first(30)), Error);
  CHECK_FALSE(own_claim().processors.empty());
}
