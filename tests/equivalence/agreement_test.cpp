/// Ranks that would not compute one attention together are told before they compute anything.

#include <array>
#include <functional>

#include "catch.hpp"
#include "distattn/attention.hpp"
#include "distattn/inproc.hpp"
#include "distattn/registry.hpp"
#include "distattn/subgroup.hpp"
#include "tests/support/one_memory.hpp"

using namespace distattn;

namespace {

constexpr int ranks = 3;

struct Request {
  Problem problem;
  ScheduleRequest options;
};

Request usual() {
  Request request;
  request.problem.seq_q = request.problem.seq_kv = 48;
  request.problem.heads = request.problem.kv_heads = 4;
  request.problem.head_dim = request.problem.value_dim = 8;
  request.options.schedule = "ring";
  return request;
}

/// What is thrown when rank 2 asks for something else.
std::string error_when_last_asks(const std::function<void(Request&)>& change) {
  std::array<bool, ranks> made{};  // by rank
  try {
    run_ranks(ranks, [&](Rank rank, Transport& transport) {
      Request request = usual();
      if (rank == 2) change(request);
      const auto device = make_device("reference", {.threads = 1});
      const Attention attention(request.problem, request.options, *device, transport);
      made[static_cast<std::size_t>(rank)] = true;
    });
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::peer);
    CHECK(!made[2]);
    return error.what();
  }
  return {};
}

std::array<std::string, ranks> schedules_made(const std::function<std::string(Rank)>& asked) {
  std::array<std::string, ranks> names;
  run_ranks(ranks, [&](Rank rank, Transport& transport) {
    Request request = usual();
    request.options.schedule = asked(rank);
    const auto device = make_device("reference", {.threads = 1});
    test::OneMemory host_only(transport);
    Subgroup turned(host_only, {1, 2, 0});
    const Attention attention(request.problem, request.options, *device, turned);
    names[static_cast<std::size_t>(rank)] = attention.outline(Pass::forward).name;
  });
  return names;
}

}  // namespace

TEST_CASE("no handle is made where a rank's plan is another than rank 0's") {
  CHECK(error_when_last_asks([](Request&) {}).empty());
  CHECK(error_when_last_asks([](Request& r) { r.problem.mask.name = "lower triangle"; }).empty());
  const std::vector<std::function<void(Request&)>> changes{
      [](Request& r) { r.options.schedule = "zigzag-ring"; },
      [](Request& r) { r.options.passes = Passes::both; },
      [](Request& r) { r.options.mode = Mode::serial; },
      [](Request& r) { r.problem.mask = full_mask(); },
      [](Request& r) { r.problem.scores.scale = 0.25; },
      [](Request& r) { r.problem.dtype = DType::bf16; },
      [](Request& r) { r.problem.seq_q = 47; },
      [](Request& r) { r.options.node_size = 1; },
      [](Request& r) { r.options.node_size = 2; },
  };
  for (const auto& change : changes) {
    CHECK_THAT(error_when_last_asks(change), contains_text("rank 2 differs from rank 0"));
  }
}

TEST_CASE("plans that ranks bring along are compared too") {
  const auto plan_of = [](const char* schedule) {
    Request request = usual();
    request.options.schedule = schedule;
    return std::make_shared<const AttentionPlan>(request.problem, ranks, request.options);
  };
  const auto ring = plan_of("ring"), again = plan_of("ring"), other = plan_of("striped-ring");
  CHECK(ring->fingerprint() == again->fingerprint());
  CHECK(ring->fingerprint() != other->fingerprint());
  const auto run = [&](const std::shared_ptr<const AttentionPlan>& of_rank_1) {
    run_ranks(ranks, [&](Rank rank, Transport& transport) {
      const auto device = make_device("reference", {.threads = 1});
      const Attention attention(rank == 1 ? of_rank_1 : ring, *device, transport);
    });
  };
  CHECK_NOTHROW(run(again));
  CHECK_THROWS_WITH(run(other), contains_text("rank 1 differs from rank 0"));
}

TEST_CASE("a plan is for some ranks") {
  Request request = usual();
  for (const char* const schedule : {"auto", "ring"}) {
    request.options.schedule = schedule;
    CHECK_THROWS_WITH(AttentionPlan(request.problem, 0, request.options), contains_text("0 ranks"));
  }
}

TEST_CASE("a name that ranks cannot tell each other is refused") {
  const Request request = usual();
  Schedule schedule = AttentionPlan(request.problem, ranks, request.options).schedule(Pass::forward);
  schedule.outline.name = std::string(2000, 'x');
  CHECK_THROWS_WITH(AttentionPlan({schedule}), contains_text("name has 2000 characters"));
}

TEST_CASE("rank 0 of the transport chooses what auto means") {
  const auto chosen = schedules_made([](Rank) { return "auto"; });
  CHECK(chosen[0] == chosen[1]);
  CHECK(chosen[1] == chosen[2]);
  // In the turned group rank 1 comes first.
  const auto followed = schedules_made([](Rank rank) { return rank == 1 ? "striped-ring" : "auto"; });
  CHECK(followed == std::array<std::string, ranks>{"striped-ring", "striped-ring", "striped-ring"});
}

TEST_CASE("rank 0 chooses the routes too, on its machine") {
  constexpr std::size_t all = 16;
  std::array<std::uint64_t, all> fingerprints{};
  std::array<int, all> ahead{};
  run_ranks(all, [&](Rank rank, Transport& transport) {
    Request request = usual();
    request.problem.seq_q = request.problem.seq_kv = 4096;
    request.problem.heads = request.problem.kv_heads = 8;
    request.problem.head_dim = request.problem.value_dim = 64;
    request.problem.mask = full_mask();
    request.options.schedule = "auto";
    request.options.machine = rank == 0 ? "dgx-a100x2" : "a machine that nobody describes";
    const auto device = make_device("reference", {.threads = 1});
    const Attention attention(request.problem, request.options, *device, transport);
    fingerprints[static_cast<std::size_t>(rank)] = attention.plan().fingerprint();
    ahead[static_cast<std::size_t>(rank)] = attention.plan().routes().ahead;
  });
  CHECK(ahead[0] > 0);
  for (std::size_t rank = 1; rank < all; ++rank) {
    CHECK(fingerprints[rank] == fingerprints[0]);
    CHECK(ahead[rank] == ahead[0]);
  }
}

TEST_CASE("when rank 0 finds no schedule, all ranks hear why and the transport stays whole") {
  std::array<std::string, ranks> errors;
  run_ranks(ranks, [&](Rank rank, Transport& transport) {
    const auto device = make_device("reference", {.threads = 1});
    Request request = usual();
    request.options.schedule = "auto";
    if (rank == 0) request.problem.head_dim = 7;
    try {
      const Attention attention(request.problem, request.options, *device, transport);
    } catch (const Error& error) {
      errors[static_cast<std::size_t>(rank)] = error.what();
    }
    const Request sound = usual();
    const Attention attention(sound.problem, sound.options, *device, transport);
  });
  for (const std::string& error : errors) CHECK(error.find("head-dim is 7") == 0);
}
