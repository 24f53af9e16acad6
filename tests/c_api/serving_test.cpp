/// Serving through the C API: its structs, what it refuses, and that a refused call changes nothing.

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "attend.hpp"
#include "catch.hpp"

using namespace distattn::test;

namespace {

constexpr int served_heads = 2, served_dim = 8, page = 16;

void fill(Tensor& tensor, float value) { std::fill(tensor.values.begin(), tensor.values.end(), value); }

distattn_problem served_problem() {
  distattn_problem problem = DISTATTN_PROBLEM_INIT;
  problem.seq_kv = 100;
  problem.seq_q = 4;
  problem.heads = problem.kv_heads = served_heads;
  problem.head_dim = served_dim;
  return problem;
}

/// One rank: one request of 20 keys in pages 2 and 0. All keys are alike, so that o is the mean of the values, 0.25.
distattn_status serve(void* user, distattn_comm* comm) {
  const distattn_problem problem = served_problem();
  distattn_serving* serving = nullptr;
  if (const distattn_status status = distattn_serving_create(&problem, 1, nullptr, comm, &serving);
      status != DISTATTN_OK) {
    return status;
  }
  Tensor q({1, served_heads, served_dim}), o({1, served_heads, served_dim}), lse({served_heads, 1});
  Tensor k({3, page, served_heads, served_dim}), v({3, page, served_heads, served_dim});
  for (Tensor* const tensor : {&q, &k}) fill(*tensor, 1);
  for (Tensor* const tensor : {&o, &lse}) fill(*tensor, 7);
  fill(v, 0.25F);
  std::array<std::int32_t, 2> pages = {2, 0};
  distattn_request request{20, 1, 0};
  distattn_serving_call call = DISTATTN_SERVING_CALL_INIT;
  call.requests = &request;
  call.requests_count = 1;
  call.q = &q.tensor;
  call.k = &k.tensor;
  call.v = &v.tensor;
  call.o = &o.tensor;
  call.lse = &lse.tensor;
  call.pages = pages.data();
  call.pages_count = pages.size();
  call.pages_a_request = 2;
  auto& refusals = *static_cast<std::vector<std::string>*>(user);
  const auto refuse = [&] { refusals.push_back(distattn_serve(serving, &call) == DISTATTN_USAGE ? message() : "no"); };
  pages[1] = 2;
  refuse();
  pages[1] = 3;
  refuse();
  pages[1] = 0;
  request.keys = 101;
  refuse();
  request.keys = 33;
  refuse();
  request = {20, 1, -1};
  refuse();
  request.owner = 0;
  call.pages = nullptr;
  refuse();
  call.pages = pages.data();
  if (o.values[0] != 7) refusals.emplace_back("a refused call wrote");
  const distattn_status status = distattn_serve(serving, &call);
  const double expected = std::sqrt(double{served_dim}) + std::log(20.0);
  for (const float number : o.values) {
    if (std::abs(number - 0.25F) > 1e-6F) refusals.emplace_back("a wrong result");
  }
  for (const float number : lse.values) {
    if (std::abs(number - expected) > 1e-5) refusals.emplace_back("a wrong lse");
  }
  if (distattn_serving_stored(serving, 20) != 20) refusals.emplace_back("a wrong count");
  if (distattn_serving_stored(serving, -1) != -1) refusals.emplace_back("a count of nothing");
  distattn_serving_free(serving);
  return status;
}

}  // namespace

TEST_CASE("requests are served from C, and bad ones are refused by number") {
  std::vector<std::string> refusals;
  REQUIRE(distattn_run_ranks(1, serve, &refusals) == DISTATTN_OK);
  REQUIRE(refusals.size() == 6);
  const char* const words[] = {"request 0 has page 2 twice", "request 0 has page 3",          "request 0 has 101 keys",
                               "request 0 needs 3 pages",    "request 0 is owned by rank -1", "pages is null"};
  for (std::size_t i = 0; i < refusals.size(); ++i) CHECK_THAT(refusals[i], contains_text(words[i]));
}

TEST_CASE("options that serving would ignore are refused") {
  const auto refused = [](distattn_status (*body)(void*, distattn_comm*)) {
    return distattn_run_ranks(1, body, nullptr) == DISTATTN_USAGE;
  };
  CHECK(refused([](void*, distattn_comm* comm) {
    distattn_options options = DISTATTN_OPTIONS_INIT;
    options.schedule = "ring";
    const distattn_problem problem = served_problem();
    distattn_serving* serving = nullptr;
    return distattn_serving_create(&problem, 1, &options, comm, &serving);
  }));
  CHECK_THAT(message(), contains_text("options have schedule"));
  CHECK(refused([](void*, distattn_comm* comm) {
    distattn_problem problem = served_problem();
    problem.dropout = 0.1;
    distattn_serving* serving = nullptr;
    return distattn_serving_create(&problem, 1, nullptr, comm, &serving);
  }));
  CHECK_THAT(message(), contains_text("dropout"));
  CHECK(refused([](void*, distattn_comm* comm) {
    const distattn_problem problem = served_problem();
    distattn_serving* serving = nullptr;
    return distattn_serving_create(&problem, 0, nullptr, comm, &serving);
  }));
  CHECK_THAT(message(), contains_text("blocks of 0 tokens"));
}
