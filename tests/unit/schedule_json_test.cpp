#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "catch.hpp"
#include "distattn/error.hpp"
#include "distattn/lower.hpp"
#include "distattn/verify.hpp"

using namespace distattn;
using nlohmann::ordered_json;

namespace {

Schedule schedule_of(std::string_view name, int ranks, Pass pass, Mask mask = causal_mask(), Routes routes = {}) {
  const Problem problem{.seq_q = 21,
                        .seq_kv = 21,
                        .heads = 4,
                        .kv_heads = 2,
                        .head_dim = 8,
                        .value_dim = 16,
                        .dtype = DType::bf16,
                        .wire = DType::bf16,
                        .scores = {.scale = 0.1},
                        .mask = std::move(mask)};
  const Recipe recipe = std::get<Recipe>(resolve_schedule(name, problem, ranks));
  const auto tiles = std::make_shared<const Tiles>(shard(problem, ranks, recipe.layout, recipe.groups));
  return lower(Lowering(recipe.name, tiles, recipe.table(tiles, routes.node_size), pass, recipe.mode, routes));
}

ordered_json small_json() {
  return ordered_json::parse(to_json(schedule_of("ring", 2, Pass::backward, {.left = 9, .sinks = 2})));
}

std::string error_of(const ordered_json& object) {
  try {
    schedule_from_json(object.dump());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Every place of the document, as pointers.
void collect(const ordered_json& value, const ordered_json::json_pointer& at,
             std::vector<ordered_json::json_pointer>& out) {
  out.push_back(at);
  if (value.is_object())
    for (const auto& [name, field] : value.items()) collect(field, at / name, out);
  if (value.is_array())
    for (std::size_t i = 0; i < value.size(); ++i) collect(value[i], at / i, out);
}

/// Fields of problems that programs of older builds lack.
constexpr std::array features_of_problems = {"softcap", "sink_logits", "max_logit", "dropout", "shared_kv"};

}  // namespace

TEST_CASE("schedules read back as they were") {
  const auto round_trips = [](const Schedule& schedule) {
    const std::string text = to_json(schedule);
    const Schedule read = schedule_from_json(text);
    CHECK(read.ranks == schedule.ranks);
    CHECK(read.outline.sharding.queries == schedule.outline.sharding.queries);
    CHECK(read.outline.sharding.keys == schedule.outline.sharding.keys);
    CHECK(read.outline.sharding.groups == schedule.outline.sharding.groups);
    CHECK(read.outline.sharding.problem.scores.scale == schedule.outline.sharding.problem.scores.scale);
    CHECK(to_json(read) == text);
    for (const Finding& finding : verify(read).findings) FAIL(finding.message);
  };
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    round_trips(schedule_of("ring", 1, pass));
    round_trips(schedule_of("allgather", 3, pass, {.documents = {0, 4, 4, 21}}));
    round_trips(schedule_of("allgather", 4, pass, full_mask()));
    round_trips(schedule_of("balanced-split", 4, pass, {.left = 3, .sinks = 2}));
    round_trips(schedule_of("mesh:2x2x2:chunked", 8, pass, block_causal_mask(21, 4), {2, 1}));
    round_trips(schedule_of("striped-ring", 30, pass, full_mask()));
  }
}

TEST_CASE("what builds before a feature wrote is for problems without it") {
  const ordered_json sound = small_json();
  for (const char* name : features_of_problems) {
    ordered_json older = sound;
    REQUIRE(older["outline"]["sharding"]["problem"].erase(name) == 1);
    CAPTURE(name);
    CHECK(to_json(schedule_from_json(older.dump())) == sound.dump());
  }
  ordered_json wrong = sound;
  wrong["outline"]["sharding"]["problem"]["shared_kv"] = 3;
  CHECK(error_of(wrong).find("shared_kv is 3") != std::string::npos);
}

TEST_CASE("a missing, unknown or wrong field is named") {
  const ordered_json sound = small_json();
  REQUIRE(error_of(sound).empty());
  const auto error_with = [&](const char* place, const ordered_json& value) {
    ordered_json changed = sound;
    changed[ordered_json::json_pointer(place)] = value;
    return error_of(changed);
  };
  CHECK(error_with("/schema_version", 2).find("schema_version") == 0);
  CHECK(error_with("/outline/pass", "sideways").find("outline.pass is \"sideways\"") == 0);
  CHECK(error_with("/outline/sharding/ranks", 2000000000).find("ranks has 2 programs") == 0);
  CHECK(error_with("/outline/sharding/problem/heads", -3).find("outline.sharding.problem.heads is -3") == 0);
  CHECK(error_with("/outline/sharding/queries/1/owner", 2).find("outline.sharding.queries[1].owner is 2") == 0);
  CHECK(error_with("/outline/sharding/problem/mask/given", {{{"q", 1}}})
            .find("outline.sharding.problem.mask.given[0].q") == 0);
  CHECK(error_with("/ranks/1/buffers/0/value/segment", 99).find("ranks[1].buffers[0].value.segment is 99") == 0);
  CHECK(error_with("/ranks/0/buffers/1/slot", -1).find("ranks[0].buffers[1].slot is -1") == 0);
  CHECK(error_with("/ranks/0/steps/0/ops/0/op", "recieve").find("ranks[0].steps[0].ops[0].op is unknown") == 0);
  CHECK(error_with("/ranks/0/steps/0/after", {77}).find("ranks[0].steps[0].after[0] is 77") == 0);
  CHECK(error_with("/ranks/0/steps/0/number", 1e30).find("ranks[0].steps[0].number") == 0);
  CHECK(error_with("/ranks/0/slots/0", 18446744073709551615ull).find("ranks[0].slots[0]") == 0);
  CHECK(error_with("/ranks", ordered_json::array()).find("ranks is []") == 0);
  CHECK(error_with("/outline/extra", 1).find("outline.extra is unknown") == 0);
  CHECK_THROWS_WITH(schedule_from_json(""), contains_text("not JSON"));
  CHECK_THROWS_WITH(schedule_from_json("[1, 2]"), contains_text("not an object"));
}

TEST_CASE("several schedules are read as strictly as one") {
  const std::string one = small_json().dump();
  CHECK(schedules_from_json(one).size() == 1);
  CHECK(schedules_from_json("[" + one + ", " + one + "]").size() == 2);
  CHECK(schedules_from_json("[]").empty());
  CHECK_THROWS_WITH(schedules_from_json(R"([{"outline": 1, "outline": 2}])"), contains_text("appears twice"));
  CHECK_THROWS_WITH(schedules_from_json("[[" + one + "]]"), contains_text("not an object"));
}

TEST_CASE("segments and groups that do not partition the problem are refused") {
  ordered_json object = small_json();
  ordered_json& queries = object["outline"]["sharding"]["queries"];
  const ordered_json sound = queries;
  queries[1]["start"] = 0;
  CHECK(error_of(object).find("share a position") != std::string::npos);
  queries = sound;
  queries[1]["count"] = 1;
  CHECK(error_of(object).find("fewer positions") != std::string::npos);
  queries = sound;
  queries[0]["count"] = std::int64_t{1} << 50;
  CHECK(error_of(object).find("queries[0] leaves the sequence") != std::string::npos);
  queries = sound;
  object["outline"]["sharding"]["groups"][0]["kv_count"] = 9;
  CHECK(error_of(object).find("groups[0]") != std::string::npos);
  object["outline"]["sharding"]["groups"] = ordered_json::array();
  CHECK(error_of(object).find("groups hold 0 of 4 heads") != std::string::npos);
}

TEST_CASE("whatever a field is replaced by, reading and proving end in an answer", "[again]") {
  const ordered_json sound = small_json();
  std::vector<ordered_json::json_pointer> places;
  collect(sound, ordered_json::json_pointer(), places);
  const std::vector<ordered_json> values = {nullptr,
                                            true,
                                            -1,
                                            0,
                                            1,
                                            7,
                                            1.5,
                                            std::int64_t{1} << 62,
                                            "x",
                                            "",
                                            ordered_json::array(),
                                            ordered_json::object(),
                                            ordered_json::array({ordered_json::array()})};
  int read = 0, refused = 0;
  for (const auto& place : places)
    for (const ordered_json& value : values) {
      ordered_json changed = sound;
      changed[place] = value;
      try {
        verify(schedule_from_json(changed.dump()));
        ++read;
      } catch (const Error& error) {
        ++refused;
        if (error.kind() != ErrorKind::usage) FAIL(place.to_string() << " = " << value.dump() << ": " << error.what());
      }
    }
  CHECK(read > 0);
  CHECK(refused > 10 * read / 2);
}

TEST_CASE("no field may be left out but those that older programs lack") {
  const ordered_json sound = small_json();
  const ordered_json::json_pointer block("/outline/sharding/layout/block");
  std::vector<ordered_json::json_pointer> places;
  collect(sound, ordered_json::json_pointer(), places);
  for (const auto& place : places) {
    if (place.empty() || !sound[place.parent_pointer()].is_object()) continue;
    const bool is_feature = std::any_of(
        features_of_problems.begin(), features_of_problems.end(),
        [&](const char* name) { return place == ordered_json::json_pointer("/outline/sharding/problem") / name; });
    if (is_feature) continue;
    ordered_json changed = sound;
    changed[place.parent_pointer()].erase(place.back());
    if (place == block) {
      CHECK(schedule_from_json(changed.dump()).outline.sharding.layout.block == 1);
      continue;
    }
    INFO(place.to_string());
    REQUIRE(error_of(changed).find(place.back() + " is missing") != std::string::npos);
  }
}
