/// The C API's attention: what it computes, and what it says when it is used wrongly.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "attend.hpp"
#include "catch.hpp"
#include "distattn/schedule.hpp"

using namespace distattn::test;

namespace {

/// Values from −½ to ½ in some order.
Tensor steps_of(std::vector<std::int64_t> shape, int step) {
  Tensor tensor(std::move(shape));
  int at = step;
  for (float& value : tensor.values) {
    value = static_cast<float>(at) / 100 - 0.5f;
    at = (at + 11 * step) % 101;
  }
  return tensor;
}

}  // namespace

TEST_CASE("attention between threads equals float64") {
  for (const char* schedule : {"zigzag-ring", "ring/burst", "usp:2", "auto"}) {
    distattn_options options = options_for(schedule);
    const distattn_status status = distattn_run_ranks(4, attend, &options);
    INFO(schedule << ": " << distattn_message());
    CHECK(status == DISTATTN_OK);
  }
}

TEST_CASE("misuse is a status and a message, never an exception") {
  distattn_problem problem = small_problem();
  distattn_attention* attention = nullptr;
  struct Try {
    distattn_problem* problem;
    distattn_options options;
    std::string says;
  } attempt{&problem, options_for("ring"), ""};
  const auto create = [&](auto change, const char* says) {
    problem = small_problem();
    attempt.options = options_for("ring");
    change();
    const auto body = [](void* user, distattn_comm* comm) {
      auto& [given, options, text] = *static_cast<Try*>(user);
      distattn_attention* made = reinterpret_cast<distattn_attention*>(user);  // whatever was there before
      const distattn_status status = distattn_attention_create(given, &options, comm, &made);
      text = distattn_message();
      CHECK(made == nullptr);
      return status;
    };
    CHECK(distattn_run_ranks(1, body, &attempt) == DISTATTN_USAGE);
    CHECK_THAT(attempt.says, contains_text(says));
    CHECK_THAT(message(), contains_text(says));
  };
  create([&] { problem.struct_size = 4; }, "struct_size");
  create([&] { problem.struct_size = sizeof(problem) - 3; }, "struct_size");
  create([&] { problem.struct_size = sizeof(problem) + 8; }, "struct_size");
  create([&] { problem.heads = 3; }, "heads");
  create([&] { problem.dtype = 9; }, "dtype");
  create([&] { attempt.options.schedule = "spiral"; }, "spiral");
  create([&] { attempt.options.backend = "abacus"; }, "abacus");
  create([&] { attempt.options.mode = 8; }, "mode");
  create([&] { attempt.options.threads = -7; }, "-7 threads");
  create([&] { attempt.options.threads = 1 << 30; }, "1073741824 threads");
  create([&] { attempt.options.reserved = 5; }, "distattn_options.reserved is 5");
  create([&] { attempt.options.local_ranks = -3; }, "local_ranks is -3");
  create([&] { attempt.options.local_rank = -9; }, "local_rank is -9");
  create([&] { attempt.options.cuda_stream = &attempt; }, "a stream for a device of the host");
  create([&] { attempt.options.node_size = -1; }, "routes with -1 ranks a node");
  create([&] { attempt.options.node_size = 1, attempt.options.ahead = -2; }, "-2 steps early");
  create([&] { attempt.options.ahead = 2; }, "nothing travels between nodes");
  create([&] { attempt.options.memory_bytes = -5; }, "memory_bytes is -5");
  create([&] { attempt.options.memory_bytes = 1; }, "ring needs ");
  create([&] { attempt.options.machine = "abacus"; }, "no machine 'abacus'");
  create([&] { attempt.options.machine = "abacus", attempt.options.schedule = nullptr; }, "no machine 'abacus'");
  const distattn_band band = {0, tokens, 0, tokens, 0, tokens};
  const std::int64_t ends[] = {0, tokens};
  const auto with_band = [&](auto change) {
    return [&problem, &band, change] {
      problem.bands = &band;
      problem.bands_count = 1;
      change();
    };
  };
  create(with_band([&] { problem.window_left = 3; }), "bands with a window");
  create(with_band([&] { problem.sinks = 1; }), "bands with global keys");
  create(with_band([&] { problem.cu_seqlens = ends, problem.cu_seqlens_count = 2; }), "bands with documents");
  create([&] { problem.bands_count = 3; }, "bands is null");
  create([&] { problem.softcap = -1; }, "softcap is -1");
  create([&] { problem.sink_logits = 2; }, "sink_logits is 2");
  create([&] { problem.dropout = 1; }, "dropout is 1");
  create([&] { problem.max_logit = -1; }, "max_logit is -1");
  create([&] { problem.alibi_slopes_count = 4; }, "alibi_slopes is null");
  create([&] { problem.cu_seqlens_count = 2; }, "cu_seqlens is null");
  create([&] { problem.cu_seqlens = ends; }, "cu_seqlens has no entry");

  CHECK(distattn_attention_create(&problem, nullptr, nullptr, &attention) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("comm is null"));
  CHECK(distattn_forward(nullptr, nullptr) == DISTATTN_USAGE);
  CHECK(distattn_attention_tokens(nullptr, DISTATTN_KEYS) == -1);
  CHECK_THAT(message(), contains_text("attention is null"));
  CHECK(distattn_comm_rank(nullptr) == -1);
  CHECK(distattn_comm_size(nullptr) == -1);
  CHECK(distattn_run_ranks(0, attend, nullptr) == DISTATTN_USAGE);
  CHECK(distattn_run_ranks(1, nullptr, nullptr) == DISTATTN_USAGE);
  distattn_comm* comm = nullptr;
  distattn_callbacks callbacks = DISTATTN_CALLBACKS_INIT;
  CHECK(distattn_comm_from_callbacks(&callbacks, &comm) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("exchange is null"));
}

TEST_CASE("tensors that are not the rank's shard are refused by name") {
  const auto body = [](void*, distattn_comm* comm) {
    const distattn_problem problem = small_problem();
    distattn_options options = options_for("ring");
    options.backward = 0;
    distattn_attention* attention = nullptr;
    REQUIRE(distattn_attention_create(&problem, &options, comm, &attention) == DISTATTN_OK);
    const std::int64_t own = distattn_attention_tokens(attention, DISTATTN_QUERIES);
    Tensor q({own, heads, dim}), k({own, kv_heads, dim}), v({own - 1, kv_heads, dim}), whole_v(k.shape), o(q.shape),
        lse({heads, own});
    distattn_tensors tensors = DISTATTN_TENSORS_INIT;
    tensors.q = &q.tensor;
    tensors.k = &k.tensor;
    tensors.v = &v.tensor;
    tensors.o = &o.tensor;
    tensors.lse = &lse.tensor;
    const auto refused = [&](const char* name) {
      CHECK(distattn_forward(attention, &tensors) == DISTATTN_USAGE);
      CHECK_THAT(message(), contains_text(name));
    };
    if (distattn_comm_rank(comm) == 0) {
      refused("v is");
      v.tensor.dtype.bits = 8;
      refused("tensor v has DLPack type");
      v.tensor.dtype.bits = 32;
      v.tensor.device.device_type = 99;
      refused("device 99");
      v.tensor.device.device_type = 1;
      tensors.v = &whole_v.tensor;
      whole_v.tensor.device.device_type = 2;
      refused("rank 0's v lies on a GPU (backend reference does not reach it)");
      whole_v.tensor.device.device_type = 1;
      std::int64_t* const extents = std::exchange(whole_v.tensor.shape, nullptr);
      refused("v has no shape");
      whole_v.tensor.shape = extents;
      void* const data = std::exchange(whole_v.tensor.data, nullptr);
      whole_v.tensor.byte_offset = 64;
      refused("was given no v");
      whole_v.tensor.data = data;
      whole_v.tensor.byte_offset = 0;
      tensors.v = &v.tensor;
      v.tensor.ndim = 2;
      refused("2 dimensions");
      std::int64_t huge[] = {1, 1 << 30, 1 << 30, std::int64_t{1} << 62};
      v.tensor.ndim = 4;
      v.tensor.shape = huge;
      refused("v is");
      CHECK(distattn_backward(attention, &tensors) == DISTATTN_USAGE);
      CHECK_THAT(message(), contains_text("options.backward"));
    }
    tensors.v = &whole_v.tensor;  // what was refused has begun nothing; the other rank waits
    const distattn_status status = distattn_forward(attention, &tensors);
    distattn_attention_free(attention);
    return status;
  };
  CHECK(distattn_run_ranks(1, body, nullptr) == DISTATTN_OK);
  CHECK(distattn_run_ranks(2, body, nullptr) == DISTATTN_OK);
}

TEST_CASE("a rank that gets no memory ends those that wait for it") {
  const auto body = [](void*, distattn_comm* comm) {
    distattn_options options = options_for("ring");
    if (distattn_comm_rank(comm) == 1) {
      options.allocate = [](void*, std::size_t) -> void* { return nullptr; };
      options.release = [](void*, void*) {};
    }
    const distattn_status status = attend(&options, comm);
    CHECK((distattn_comm_rank(comm) == 1 ? status == DISTATTN_ENVIRONMENT : status != DISTATTN_OK));
    CHECK_THAT(message(), contains_text("allocator"));
    return DISTATTN_OK;  // nobody else learns of it but from the failing call
  };
  CHECK(distattn_run_ranks(3, body, nullptr) == DISTATTN_OK);
}

TEST_CASE("a caller of an older header keeps its meaning") {
  distattn_options options = options_for("ring");
  options.struct_size = offsetof(distattn_options, threads);
  options.threads = -7;
  CHECK(distattn_run_ranks(2, attend, &options) == DISTATTN_OK);
  options = options_for("ring");
  options.struct_size = offsetof(distattn_options, machine);
  options.machine = "abacus";
  options.memory_bytes = -1;
  CHECK(distattn_run_ranks(2, attend, &options) == DISTATTN_OK);
}

TEST_CASE("auto chooses for a machine that is named, and ranks on it agree") {
  distattn_options options = options_for("auto");
  options.machine = "dgx-a100x2";
  options.node_size = 2;
  CHECK(distattn_run_ranks(4, attend, &options) == DISTATTN_OK);
}

TEST_CASE("what a float LSE cannot hold comes with the forward pass and goes with the backward pass, if one likes") {
  const auto body = [](void*, distattn_comm* comm) {
    distattn_problem problem = small_problem();
    problem.scale = 100;
    const distattn_options options = options_for("ring");
    distattn_attention* attention = nullptr;
    REQUIRE(distattn_attention_create(&problem, &options, comm, &attention) == DISTATTN_OK);
    const std::int64_t mine = distattn_attention_tokens(attention, DISTATTN_QUERIES);
    const Tensor q = steps_of({mine, heads, dim}, 7), k = steps_of({mine, kv_heads, dim}, 5),
                 v = steps_of({mine, kv_heads, dim}, 3);
    Tensor o(q.shape), lse({heads, mine}), low({heads, mine}), dq(q.shape), dk(k.shape), dv(v.shape), rough(q.shape);
    distattn_tensors tensors = DISTATTN_TENSORS_INIT;
    tensors.q = &q.tensor;
    tensors.k = &k.tensor;
    tensors.v = &v.tensor;
    tensors.o = &o.tensor;
    tensors.lse = &lse.tensor;
    tensors.d_o = &q.tensor;
    tensors.dq = &dq.tensor;
    tensors.dk = &dk.tensor;
    tensors.dv = &dv.tensor;
    tensors.lse_low = &low.tensor;
    CHECK(distattn_forward(attention, &tensors) == DISTATTN_OK);
    CHECK(distattn_backward(attention, &tensors) == DISTATTN_OK);
    bool some = false, small = true;
    for (std::size_t i = 0; i < low.values.size(); ++i) {
      some = some || low.values[i] != 0;
      small = small && std::abs(low.values[i]) <= 1e-7f * std::abs(lse.values[i]);
    }
    CHECK(some);
    CHECK(small);

    const std::vector<float> kept = low.values;
    tensors.lse_low = nullptr;
    tensors.dq = &rough.tensor;
    CHECK(distattn_forward(attention, &tensors) == DISTATTN_OK);
    CHECK(distattn_backward(attention, &tensors) == DISTATTN_OK);
    CHECK(rough.values != dq.values);
    for (std::size_t i = 0; i < dq.values.size(); ++i) {
      CHECK(rough.values[i] == Approx(dq.values[i]).epsilon(1e-2).margin(1e-2));
    }

    tensors.lse_low = &q.tensor;
    CHECK(distattn_forward(attention, &tensors) == DISTATTN_USAGE);
    CHECK_THAT(message(), contains_text("lse_low"));
    tensors.struct_size = offsetof(distattn_tensors, lse_low);  // a caller of an older header has none
    CHECK(distattn_forward(attention, &tensors) == DISTATTN_OK);
    CHECK(low.values == kept);
    distattn_attention_free(attention);
    return DISTATTN_OK;
  };
  CHECK(distattn_run_ranks(1, body, nullptr) == DISTATTN_OK);
}

TEST_CASE("schedules come as JSON") {
  const auto body = [](void*, distattn_comm* comm) {
    const distattn_problem problem = small_problem();
    const distattn_options options = options_for("zigzag-ring");
    distattn_attention* attention = nullptr;
    REQUIRE(distattn_attention_create(&problem, &options, comm, &attention) == DISTATTN_OK);
    char* json = nullptr;
    REQUIRE(distattn_schedule_json(attention, DISTATTN_BACKWARD, &json) == DISTATTN_OK);
    const distattn::Schedule schedule = distattn::schedule_from_json(json);
    CHECK(schedule.outline.pass == distattn::Pass::backward);
    CHECK(schedule.ranks.size() == 2);
    distattn_text_free(json);
    CHECK(distattn_schedule_json(attention, 2, &json) == DISTATTN_USAGE);
    CHECK_THAT(message(), contains_text("pass is 2"));
    CHECK(distattn_attention_tokens(attention, 2) == -1);
    CHECK_THAT(message(), contains_text("side is 2"));
    std::int64_t position = 0;
    CHECK(distattn_attention_positions(attention, 2, &position) == DISTATTN_USAGE);
    distattn_attention_free(attention);
    return DISTATTN_OK;
  };
  CHECK(distattn_run_ranks(2, body, nullptr) == DISTATTN_OK);
}

TEST_CASE("buffers lie in a caller's memory, which comes back") {
  struct Memory {
    std::atomic<int> held = 0, given = 0;
  } memory;
  distattn_options options = options_for("zigzag-ring");
  options.user = &memory;
  options.allocate = [](void* user, std::size_t bytes) {
    ++static_cast<Memory*>(user)->held;
    ++static_cast<Memory*>(user)->given;
    return std::aligned_alloc(64, (bytes / 64 + 1) * 64);
  };
  options.release = [](void* user, void* block) {
    --static_cast<Memory*>(user)->held;
    std::free(block);
  };
  CHECK(distattn_run_ranks(2, attend, &options) == DISTATTN_OK);
  CHECK(memory.given >= 4);  // of both ranks and passes
  CHECK(memory.held == 0);

  options.allocate = [](void*, std::size_t) -> void* { return nullptr; };
  CHECK(distattn_run_ranks(2, attend, &options) == DISTATTN_ENVIRONMENT);
  CHECK_THAT(message(), contains_text("allocator"));
  options.release = nullptr;
  CHECK(distattn_run_ranks(2, attend, &options) == DISTATTN_USAGE);
}

TEST_CASE("a layout is made, and made the same plan from again") {
  const std::int64_t documents[] = {0, 20, 36, 53};
  distattn_problem problem = small_problem();
  problem.cu_seqlens = documents;
  problem.cu_seqlens_count = std::size(documents);
  distattn_options options = options_for(nullptr);
  char* text = nullptr;
  const bool made = distattn_plan_layout(&problem, &options, 3, nullptr, &text) == DISTATTN_OK;
  INFO(message());
  REQUIRE(made);
  const std::string layout = text;
  distattn_text_free(text);
  CHECK(nlohmann::json::parse(layout).at("ranks") == 3);
  const auto owned = [&](int rank) {
    std::int64_t count = 0;
    CHECK(distattn_planned_positions(&problem, &options, 3, rank, DISTATTN_QUERIES, nullptr, &count) == DISTATTN_OK);
    std::vector<std::int64_t> positions(static_cast<std::size_t>(count));
    CHECK(distattn_planned_positions(&problem, &options, 3, rank, DISTATTN_QUERIES, positions.data(), &count) ==
          DISTATTN_OK);
    return positions;
  };
  options.layout = layout.c_str();
  std::vector<std::int64_t> all;
  for (int rank = 0; rank < 3; ++rank) {
    const auto mine = owned(rank);
    CHECK(mine.size() <= 18);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  REQUIRE(all.size() == 53);
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i] == static_cast<std::int64_t>(i));
  CHECK(distattn_plan_layout(&problem, &options, 2, nullptr, &text) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("for 3 ranks"));
  options.schedule = "ring";
  CHECK(distattn_plan_layout(&problem, &options, 3, nullptr, &text) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("layout of its own"));
  options.layout = nullptr;
  options.schedule = "placed";
  options.balance_tokens = -0.5;
  CHECK(distattn_plan_layout(&problem, &options, 3, nullptr, &text) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("balance_tokens"));
}

TEST_CASE("plans come as JSON, without ranks") {
  const distattn_problem problem = small_problem();
  distattn_options options = options_for("ring/burst");
  const auto plan = [&](int ranks, const char* machine) {
    char* text = nullptr;
    REQUIRE(distattn_plan_json(&problem, &options, ranks, machine, &text) == DISTATTN_OK);
    nlohmann::json json = nlohmann::json::parse(text);
    distattn_text_free(text);
    return json;
  };
  const nlohmann::json both = plan(4, "dgx-h100x8");
  REQUIRE(both.size() == 2);
  CHECK(both[0].at("schedule") == "ring/burst");
  CHECK(both[1].at("pass") == "backward");
  CHECK(both[1].at("predicted_s") > 0);
  CHECK(both[0].at("proved") == true);
  options.schedule = nullptr;
  options.backward = 0;
  CHECK(plan(3, nullptr).size() == 1);

  char* text = nullptr;
  CHECK(distattn_plan_json(&problem, &options, 0, nullptr, &text) == DISTATTN_USAGE);
  CHECK(distattn_plan_json(&problem, &options, 2, "abacus", &text) == DISTATTN_USAGE);
  options.machine = "dgx-h100x8";
  CHECK(distattn_plan_json(&problem, &options, 2, "dgx-a100x2", &text) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("dgx-h100x8 in the options"));
  CHECK(plan(2, "dgx-h100x8") == plan(2, nullptr));
  options.machine = nullptr;
  options.memory_bytes = 1;
  CHECK(distattn_plan_json(&problem, &options, 2, "dgx-h100x8", &text) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("no schedule fits 1 B a rank"));
  options.memory_bytes = 0;
  options.schedule = "ulysses";
  CHECK(distattn_plan_json(&problem, &options, 7, nullptr, &text) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("ulysses"));
}
