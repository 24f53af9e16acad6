/// The C API's shards: where tokens stand, without ranks and with them, and what ranks gather. What the library is.

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attend.hpp"
#include "catch.hpp"

using namespace distattn::test;

namespace {

std::vector<std::int64_t> planned(const distattn_options& options, int ranks, int rank, std::int32_t side) {
  const distattn_problem problem = small_problem();
  std::int64_t count = 0;
  REQUIRE(distattn_planned_positions(&problem, &options, ranks, rank, side, nullptr, &count) == DISTATTN_OK);
  std::vector<std::int64_t> positions(static_cast<std::size_t>(count));
  REQUIRE(distattn_planned_positions(&problem, &options, ranks, rank, side, positions.data(), &count) == DISTATTN_OK);
  return positions;
}

}  // namespace

TEST_CASE("planned positions are those of the handles") {
  for (const char* schedule : {"ring", "zigzag-ring", "attention2d", "mesh:2x2x1:chunked"}) {
    distattn_options options = options_for(schedule);
    const auto body = [](void* user, distattn_comm* comm) {
      const auto& given = *static_cast<const distattn_options*>(user);
      const distattn_problem problem = small_problem();
      distattn_attention* attention = nullptr;
      REQUIRE(distattn_attention_create(&problem, &given, comm, &attention) == DISTATTN_OK);
      for (const std::int32_t side : {DISTATTN_QUERIES, DISTATTN_KEYS}) {
        std::vector<std::int64_t> own(static_cast<std::size_t>(distattn_attention_tokens(attention, side)));
        REQUIRE(distattn_attention_positions(attention, side, own.data()) == DISTATTN_OK);
        CHECK(planned(given, distattn_comm_size(comm), distattn_comm_rank(comm), side) == own);
      }
      distattn_attention_free(attention);
      return DISTATTN_OK;
    };
    CHECK(distattn_run_ranks(4, body, &options) == DISTATTN_OK);
  }
}

TEST_CASE("a layout that is named deals out blocks, and results are right on it") {
  for (const char* schedule : {"ring", "burst", "usp:2", "ring/burst"}) {
    distattn_options options = options_for(schedule);
    options.layout = "striped:3";
    for (int rank = 0; rank < 4; ++rank) {
      for (const std::int64_t position : planned(options, 4, rank, DISTATTN_KEYS)) CHECK(position / 3 % 4 == rank);
    }
    const bool right = distattn_run_ranks(4, attend, &options) == DISTATTN_OK;
    INFO(schedule << ": " << message());
    CHECK(right);
  }
  const distattn_problem problem = small_problem();
  distattn_options options = options_for("balanced");
  options.layout = "striped:3";
  std::int64_t count = 0;
  CHECK(distattn_planned_positions(&problem, &options, 4, 0, DISTATTN_KEYS, nullptr, &count) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("schedule balanced does not go with layout striped:3 on 4 ranks ("));
  options.schedule = "ring";
  options.layout = "striped:0";
  CHECK(distattn_planned_positions(&problem, &options, 4, 0, DISTATTN_KEYS, nullptr, &count) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("write striped:64"));
}

TEST_CASE("positions of a rank that is none, or of no schedule, are refused") {
  const distattn_problem problem = small_problem();
  distattn_options options = options_for("ring");
  std::int64_t count = 0;
  const auto ask = [&](int rank, std::int32_t side, std::int64_t* counted) {
    return distattn_planned_positions(&problem, &options, 2, rank, side, nullptr, counted);
  };
  CHECK(ask(2, DISTATTN_QUERIES, &count) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("rank 2 of 2"));
  CHECK(ask(-1, DISTATTN_QUERIES, &count) == DISTATTN_USAGE);
  CHECK(ask(0, 7, &count) == DISTATTN_USAGE);
  CHECK(ask(0, DISTATTN_KEYS, nullptr) == DISTATTN_USAGE);
  options.schedule = "spiral";
  CHECK(ask(0, DISTATTN_KEYS, &count) == DISTATTN_USAGE);
}

TEST_CASE("every rank gathers what all have, of any size") {
  const auto body = [](void*, distattn_comm* comm) {
    const std::vector<std::size_t> bytes = {5, 0, 131, 64};
    const auto rank = static_cast<std::size_t>(distattn_comm_rank(comm));
    std::string expected;
    for (std::size_t r = 0; r < bytes.size(); ++r) expected.append(bytes[r], static_cast<char>('a' + r));
    const std::string mine(bytes[rank], static_cast<char>('a' + rank));
    for (int again = 0; again < 2; ++again) {
      std::string all(expected.size(), '?');
      CHECK(distattn_comm_all_gather(comm, mine.data(), bytes.data(), all.data()) == DISTATTN_OK);
      CHECK(all == expected);
      distattn_options options = options_for("ring");
      CHECK(attend(&options, comm) == DISTATTN_OK);
    }
    CHECK(distattn_comm_all_gather(comm, nullptr, nullptr, nullptr) == DISTATTN_USAGE);
    const std::vector<std::size_t> nothing(bytes.size(), 0);
    CHECK(distattn_comm_all_gather(comm, nullptr, nothing.data(), nullptr) == DISTATTN_OK);
    return DISTATTN_OK;
  };
  CHECK(distattn_run_ranks(4, body, nullptr) == DISTATTN_OK);
  CHECK(distattn_comm_all_gather(nullptr, nullptr, nullptr, nullptr) == DISTATTN_USAGE);
}

TEST_CASE("a rank that does not gather ends those that do") {
  const auto body = [](void*, distattn_comm* comm) {
    if (distattn_comm_rank(comm) == 1) return distattn_comm_abort(comm, "nothing to give");
    const std::vector<std::size_t> bytes = {1, 1};
    char own = 'a';
    std::string all(2, '?');
    CHECK(distattn_comm_all_gather(comm, &own, bytes.data(), all.data()) == DISTATTN_INTERRUPTED);
    CHECK_THAT(message(), contains_text("nothing to give"));
    return DISTATTN_OK;
  };
  CHECK(distattn_run_ranks(2, body, nullptr) == DISTATTN_OK);
}

TEST_CASE("what the library is comes as JSON") {
  char* text = nullptr;
  REQUIRE(distattn_info_json(&text) == DISTATTN_OK);
  const nlohmann::json info = nlohmann::json::parse(text);
  distattn_text_free(text);
  CHECK(info.at("version") == distattn_version());
  CHECK(info.at("cpu").at("cores") >= 1);
  const auto& backends = info.at("backends");
  const auto reference = std::find_if(backends.begin(), backends.end(),
                                      [](const nlohmann::json& row) { return row.at("name") == "reference"; });
  REQUIRE(reference != backends.end());
  CHECK(reference->at("usable") == true);
  for (const char* kind : {"transports", "bootstraps", "providers"}) CHECK(info.at(kind).is_array());
  CHECK(distattn_info_json(nullptr) == DISTATTN_USAGE);
}
