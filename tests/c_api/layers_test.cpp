/// Layers that attend differently, through the C API.

#include <algorithm>
#include <vector>

#include "attend.hpp"
#include "catch.hpp"

using namespace distattn::test;

TEST_CASE("layers that attend differently share a layout") {
  for (const char* schedule : {"zigzag-ring", "usp:3", "placed", "auto"}) {
    distattn_options options = options_for(schedule);
    const distattn_status status = distattn_run_ranks(3, attend_layers, &options);
    INFO(schedule << ": " << distattn_message());
    CHECK(status == DISTATTN_OK);
  }
}

TEST_CASE("layers that cannot share a layout are refused") {
  distattn_problem first = small_problem(), second = small_problem();
  struct Try {
    std::vector<const distattn_problem*> problems;
    const double* weights = nullptr;
    distattn_options options = options_for("ring");
    std::string says = {};
  };
  const auto says = [](Try attempt) {
    const auto body = [](void* user, distattn_comm* comm) {
      auto& [problems, weights, options, text] = *static_cast<Try*>(user);
      std::vector<distattn_attention*> made(problems.size(), reinterpret_cast<distattn_attention*>(user));
      const distattn_status status =
          distattn_attentions_create(problems.data(), weights, problems.size(), &options, comm, made.data());
      text = distattn_message();
      CHECK(status == DISTATTN_USAGE);
      CHECK(std::count(made.begin(), made.end(), nullptr) == std::ssize(made));
      return DISTATTN_OK;
    };
    distattn_run_ranks(1, body, &attempt);
    return attempt.says;
  };
  const double zero[] = {1, 0};
  CHECK_THAT(says({{&first, &second}, zero}), contains_text("weight 0"));
  CHECK_THAT(says({{&first, nullptr}}), contains_text("problem is null"));
  second.seq_q = second.seq_kv = tokens + 1;
  CHECK_THAT(says({{&first, &second}}), contains_text("one layout deals out one sequence"));
  second = small_problem();
  second.window_left = 3;
  Try chunked{{&first, &second}};
  chunked.options.schedule = "mesh:1x1x1:chunked";
  chunked.options.memory_bytes = 100;
  CHECK_THAT(says(chunked), contains_text("memory_bytes allows 100 B"));
}
