/// The C API's queued passes.

#include <condition_variable>
#include <mutex>

#include "attend.hpp"
#include "catch.hpp"

using namespace distattn::test;

namespace {

/// An exchange of rank 0 of two that ends, badly, when the test says so.
struct Exchange {
  static int exchange(void* user, std::int32_t, const distattn_transfer*, std::size_t, const distattn_transfer*,
                      std::size_t) {
    auto& self = *static_cast<Exchange*>(user);
    std::unique_lock lock(self.mutex);
    self.changed.wait(lock, [&] { return self.open; });
    return self.calls++ == 0 ? 0 : 7;  // the first is the agreement of ranks
  }
  void set_open(bool now) {
    const std::scoped_lock lock(mutex);
    open = now;
    changed.notify_all();
  }

  std::mutex mutex;
  std::condition_variable changed;
  bool open = true;
  int calls = 0;
};

/// Rank 0's handle in a world of which it is the only one that is there.
struct Handle {
  explicit Handle(Exchange& exchange) {
    distattn_callbacks callbacks = DISTATTN_CALLBACKS_INIT;
    callbacks.size = 2;
    callbacks.user = &exchange;
    callbacks.exchange = Exchange::exchange;
    REQUIRE(distattn_comm_from_callbacks(&callbacks, &comm) == DISTATTN_OK);
    const distattn_problem problem = small_problem();
    const distattn_options options = options_for("ring");
    REQUIRE(distattn_attention_create(&problem, &options, comm, &attention) == DISTATTN_OK);
    const std::int64_t mine = distattn_attention_tokens(attention, DISTATTN_QUERIES);
    for (auto& [tensor, shape] : {std::pair{&q, std::vector<std::int64_t>{mine, heads, dim}},
                                  {&k, {mine, kv_heads, dim}},
                                  {&v, {mine, kv_heads, dim}},
                                  {&o, {mine, heads, dim}},
                                  {&lse, {heads, mine}}}) {
      *tensor = std::make_unique<Tensor>(shape);
    }
    tensors.q = &q->tensor;
    tensors.k = &k->tensor;
    tensors.v = &v->tensor;
    tensors.o = &o->tensor;
    tensors.lse = &lse->tensor;
  }
  void give_back() {
    distattn_attention_free(attention);
    distattn_comm_free(comm);
  }

  distattn_comm* comm = nullptr;
  distattn_attention* attention = nullptr;
  std::unique_ptr<Tensor> q, k, v, o, lse;
  distattn_tensors tensors = DISTATTN_TENSORS_INIT;
};

}  // namespace

TEST_CASE("queued passes between threads equal float64") {
  for (const char* schedule : {"zigzag-ring", "ring/burst"}) {
    for (const int ranks : {1, 3}) {
      distattn_options options = options_for(schedule);
      const distattn_status status = distattn_run_ranks(ranks, attend_queued, &options);
      INFO(schedule << " on " << ranks << ": " << distattn_message());
      CHECK(status == DISTATTN_OK);
    }
  }
}

TEST_CASE("a queued pass is not done before it has ended, and its failure reaches whoever asks") {
  Exchange exchange;
  Handle handle(exchange);
  exchange.set_open(false);
  distattn_event* event = nullptr;
  REQUIRE(distattn_forward_async(handle.attention, &handle.tensors, nullptr, &event) == DISTATTN_OK);
  REQUIRE(event != nullptr);
  CHECK(distattn_forward_async(handle.attention, &handle.tensors, event, nullptr) == DISTATTN_OK);
  std::int32_t done = -1;
  CHECK(distattn_event_done(event, &done) == DISTATTN_OK);
  CHECK(done == 0);
  CHECK(distattn_attention_check(handle.attention) == DISTATTN_OK);
  exchange.set_open(true);

  CHECK(distattn_event_wait(event) == DISTATTN_PEER);
  CHECK_THAT(message(), contains_text("rank 0, step "));
  CHECK_THAT(message(), contains_text("the exchange callback returned 7"));
  const std::string told = message();
  CHECK(distattn_event_done(event, &done) == DISTATTN_PEER);
  CHECK(done == 1);
  const auto tells = [&](distattn_status status) {
    CHECK(status == DISTATTN_PEER);
    CHECK(message() == told);
  };
  tells(distattn_attention_wait(handle.attention));
  tells(distattn_attention_check(handle.attention));
  tells(distattn_forward(handle.attention, &handle.tensors));
  distattn_event* later = reinterpret_cast<distattn_event*>(&exchange);  // whatever was there before
  tells(distattn_forward_async(handle.attention, &handle.tensors, nullptr, &later));
  CHECK(later == nullptr);
  handle.give_back();
  tells(distattn_event_wait(event));
  distattn_event_free(event);
}

TEST_CASE("giving a handle back waits for its queued passes") {
  Exchange exchange;
  Handle handle(exchange);
  distattn_event* event = nullptr;
  CHECK(distattn_forward_async(handle.attention, &handle.tensors, nullptr, &event) == DISTATTN_OK);
  handle.give_back();
  std::int32_t done = 0;
  CHECK(distattn_event_done(event, &done) == DISTATTN_PEER);
  CHECK(done == 1);
  distattn_event_free(event);
}

TEST_CASE("misused queued passes are refused") {
  Exchange exchange;
  Handle handle(exchange);
  distattn_event* event = nullptr;
  std::int32_t done = 0;
  CHECK(distattn_forward_async(nullptr, &handle.tensors, nullptr, &event) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("attention is null"));
  CHECK(distattn_backward_async(nullptr, &handle.tensors, nullptr, &event) == DISTATTN_USAGE);
  CHECK(distattn_forward_async(handle.attention, nullptr, nullptr, &event) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("tensors is null"));
  distattn_tensors wrong = handle.tensors;
  wrong.k = wrong.q;
  CHECK(distattn_forward_async(handle.attention, &wrong, nullptr, &event) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("rank 0's k is"));
  wrong.struct_size = 3;
  CHECK(distattn_forward_async(handle.attention, &wrong, nullptr, &event) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("struct_size is 3"));
  CHECK(event == nullptr);
  CHECK(distattn_event_wait(nullptr) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("event is null"));
  CHECK(distattn_event_done(nullptr, &done) == DISTATTN_USAGE);
  CHECK(distattn_attention_check(nullptr) == DISTATTN_USAGE);
  CHECK(distattn_attention_wait(nullptr) == DISTATTN_USAGE);
  distattn_event_free(nullptr);
  CHECK(distattn_attention_wait(handle.attention) == DISTATTN_OK);  // nothing was queued
  handle.give_back();
}
