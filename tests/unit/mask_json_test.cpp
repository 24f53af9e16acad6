#include "distattn/error.hpp"
#include "distattn/mask.hpp"

#include "catch.hpp"

using namespace distattn;

namespace {

void require_refused_text(const char* text, const char* why) {
  INFO(text);
  try {
    mask_from_json(text, "mask.json");
    FAIL("not refused");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    CHECK_THAT(error.what(), contains_text(why) && contains_text("mask.json"));
  }
}

}  // namespace

TEST_CASE("a mask file says its bands") {
  const Mask mask = mask_from_json(R"([{"q":[0,512],"k":[0,512],"diff":[0,null]},
                                       {"q":[512,null],"k":[null,null],"diff":[-3,7]}])",
                                   "mask.json");
  CHECK(mask.explicit_bands);
  CHECK(mask.name == "mask.json");
  CHECK(bands_of(mask) ==
        std::vector<Band>{{0, 512, 0, 512, 0, unbounded}, {512, unbounded, -unbounded, unbounded, -3, 7}});
  CHECK(bands_of(mask_from_json("[]", "mask.json")).empty());
}

TEST_CASE("mask files of another form are refused") {
  require_refused_text("{}", "no list");
  require_refused_text("[1]", "not an object");
  require_refused_text("[{\"q\":[0,1],", "not JSON");
  require_refused_text(R"([{"q":[0,1],"k":[0,1]}])", "diff is missing");
  require_refused_text(R"([{"q":[0],"k":[0,1],"diff":[0,1]}])", "[0].q is not a pair");
  require_refused_text(R"([{"q":[0,1.5],"k":[0,1],"diff":[0,1]}])", "positions");
  require_refused_text(R"([{"q":[0,1e3],"k":[0,1],"diff":[0,1]}])", "positions");
  require_refused_text(R"([{"q":[0,true],"k":[0,1],"diff":[0,1]}])", "positions");
  require_refused_text(R"([{"q":[0,"9"],"k":[0,1],"diff":[0,1]}])", "positions");
  require_refused_text(R"([{"q":[0,1e400],"k":[0,1],"diff":[0,1]}])", "out of range");
  require_refused_text(R"([{"q":[0,1],"k":[0,1],"diff":[0,1],"color":1}])", "color");
  require_refused_text(R"([{"q":[32,0],"k":[0,1],"diff":[0,1]}])", "[0] has a range that runs backwards");
  require_refused_text(R"([{"q":[0,1],"k":[0,1],"diff":[0,1]},{"q":[1,2],"k":[0,1],"diff":[5,2]}])", "[1] has a range");
}

TEST_CASE("a bound that no position reaches is none") {
  for (const char* const far :
       {"1152921504606846976", "9223372036854775807", "18446744073709551615", "99999999999999999999999", "1e30"}) {
    const std::string bound = far;
    const Mask mask = mask_from_json(
        "[{\"q\":[-" + bound + "," + bound + "],\"k\":[0," + bound + "],\"diff\":[0," + bound + "]}]", "mask.json");
    CHECK(bands_of(mask) == std::vector<Band>{{-unbounded, unbounded, 0, unbounded, 0, unbounded}});
  }
}

TEST_CASE("a zero byte does not end a mask file") {
  const std::string_view cut("[]\0[1]", 6);
  try {
    mask_from_json(cut, "mask.json");
    FAIL("not refused");
  } catch (const Error& error) {
    CHECK_THAT(error.what(), contains_text("mask.json has a zero byte at byte 3"));
  }
}

TEST_CASE("a mask of many bands is read within moments", "[again]") {
  std::string text = "[";
  constexpr int documents = 200'000;  // squares of this many take minutes
  for (int d = 0; d < documents; ++d) {
    const std::string range = std::to_string(2 * d) + "," + std::to_string(2 * d + 2);
    text += std::string(d == 0 ? "" : ",") + R"({"q":[)" + range + R"(],"k":[)" + range + R"(],"diff":[0,null]})";
  }
  const Mask mask = mask_from_json(text + "]", "mask.json");
  CHECK(bands_of(mask).size() == documents);
  CHECK_NOTHROW(check(mask, 2 * documents));
}
