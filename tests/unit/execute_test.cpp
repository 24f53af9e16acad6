#include "distattn/execute.hpp"

#include <array>
#include <limits>
#include <memory>
#include <thread>
#include <utility>

#include "catch.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/message_of.hpp"
#include "tests/unit/scripted_rank.hpp"

namespace distattn {
namespace {

using test::ManualState;
using test::message_of;
using test::Rig;

TEST_CASE("An exchange is known by its number, lane and due where a group hands over a copy") {
  Rig rig;
  const auto buffers = rig.device.allocate(rig.outline, rig.program, 0);
  for (std::size_t i = 0; i < rig.program.steps.size(); ++i) CHECK(buffers->index_of(rig.program.steps[i]) == i);
  Step renamed = rig.program.steps[3];
  std::get<Send>(renamed.ops[0]).to = 7;
  CHECK(buffers->index_of(renamed) == 3);
}

TEST_CASE("A transport prepares a program's memory before the first run, where the program exchanges anything") {
  Rig rig;
  {
    Executor executor(rig.outline, rig.program, 0, rig.device, rig.transport);
    CHECK(rig.transport.prepared == std::vector<const BufferTable*>{&executor.buffers()});
    CHECK(rig.log.submitted.empty());
    executor.run(rig.bindings);
    executor.run(rig.bindings);
    CHECK(rig.transport.prepared.size() == 1);
  }
  rig.transport.on_prepare = [] { throw Error(ErrorKind::environment, "no memory to pin"); };
  CHECK(message_of([&] { Executor(rig.outline, rig.program, 0, rig.device, rig.transport); }) == "no memory to pin");
  std::erase_if(rig.program.steps, [](const Step& step) { return step.lane != Lane::compute; });
  for (Step& step : rig.program.steps) step.after.clear();
  const Executor alone(rig.outline, rig.program, 0, rig.device, rig.transport);
  CHECK(rig.transport.prepared.size() == 2);
}

TEST_CASE("A device refuses what a problem needs and it lacks, unless it has better words") {
  Rig rig;
  const auto refusal = [&] {
    return message_of([&] { Executor(rig.outline, rig.program, 0, rig.device, rig.transport); });
  };
  const Features needed = features_of(rig.outline.sharding.problem);
  for (const Feature feature : needed.list()) {
    rig.device.computed = all_features().without({feature});
    CHECK_THAT(refusal(), contains_text("scripted computes"));
    CHECK_THAT(refusal(), contains_text(name_of(feature)));
  }
  rig.device.why = "no room";
  CHECK(refusal() == "no room");
  rig.device.computed = needed;
  CHECK(refusal() == "no room");
  rig.device.why.clear();
  CHECK_NOTHROW(Executor(rig.outline, rig.program, 0, rig.device, rig.transport));
}

TEST_CASE("The timeline holds every step in its order of start, and none before what it waits for") {
  Rig rig;
  auto exchange = std::make_shared<ManualState>();
  std::thread finisher;
  rig.transport.script[1] = [&](std::span<const Event>) {
    finisher = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      exchange->complete();
    });
    return Event(exchange);
  };
  rig.transport.script[3] = [&](std::span<const Event>) {
    exchange->wait();
    return Event();
  };
  Executor executor(rig.outline, rig.program, 0, rig.device, rig.transport);
  const Timeline& timeline = executor.run(rig.bindings);
  finisher.join();

  REQUIRE(timeline.spans.size() == 4);
  std::array<Span, 4> by_step{};
  double last = 0;
  for (const Span& span : timeline.spans) {
    CHECK(span.start_s >= last);
    CHECK(span.end_s >= span.start_s);
    CHECK(span.end_s <= timeline.seconds);
    last = span.start_s;
    by_step[index(span.step)] = span;
  }
  CHECK(by_step[1].end_s >= 0.005);
  CHECK(by_step[1].start_s >= by_step[0].end_s);
  CHECK(by_step[2].start_s >= by_step[1].end_s);
  CHECK(by_step[3].start_s >= by_step[1].end_s);
}

TEST_CASE("The first failure ends the other lanes and is what run throws, then and later") {
  Rig rig;
  ManualState near_begun;
  rig.device.script[2] = [&](std::span<const Event>) -> Event {
    near_begun.wait();
    throw Error(ErrorKind::environment, "rank 0, step 1, compute lane: out of paper");
  };
  bool near_ended = false;
  rig.transport.script[3] = [&](std::span<const Event>) -> Event {
    near_begun.complete();
    while (!rig.transport.ended.done()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    near_ended = true;
    return {};
  };
  Executor executor(rig.outline, rig.program, 0, rig.device, rig.transport);
  CHECK(message_of([&] { executor.run(rig.bindings); }) == "rank 0, step 1, compute lane: out of paper");
  CHECK(near_ended);
  CHECK(rig.log.aborts.size() == 2);
  CHECK(rig.device.stores == 0);
  CHECK(message_of([&] { executor.run(rig.bindings); }) == "rank 0, step 1, compute lane: out of paper");
}

TEST_CASE("The failure of another rank stops a kernel that awaits nobody") {
  Rig rig;
  rig.device.script[2] = [&](std::span<const Event>) -> Event {
    rig.transport.listener(Error(ErrorKind::peer, "rank 1 is gone"));
    rig.device.ended.wait();
    return {};
  };
  Executor executor(rig.outline, rig.program, 0, rig.device, rig.transport);
  CHECK(message_of([&] { executor.run(rig.bindings); }) == "rank 1 is gone");
  CHECK(rig.transport.listener == nullptr);
}

TEST_CASE("A failure that an event reports late is thrown too") {
  Rig rig;
  auto exchange = std::make_shared<ManualState>();
  rig.transport.script[1] = [&](std::span<const Event>) { return Event(exchange); };
  rig.device.script[2] = [&](std::span<const Event>) {
    exchange->complete(std::make_exception_ptr(Error(ErrorKind::peer, "rank 1 is gone")));
    return Event();
  };
  Executor executor(rig.outline, rig.program, 0, rig.device, rig.transport);
  CHECK(message_of([&] { executor.run(rig.bindings); }) == "rank 1 is gone");
}

TEST_CASE("The first step of every lane follows the inputs, and begins no sooner") {
  Rig rig;
  const auto inputs = std::make_shared<ManualState>();
  rig.device.loaded = Event(inputs);
  std::array<std::size_t, 4> followed{};
  std::thread loader;
  rig.device.on_load = [&] {
    loader = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      inputs->complete();
    });
  };
  const auto follow = [&](std::size_t step) {
    return [&followed, step](std::span<const Event> after) -> Event {
      followed[step] = after.size();
      for (const Event& event : after) event.wait();
      return {};
    };
  };
  for (const std::size_t step : {0, 2}) rig.device.script[step] = follow(step);
  for (const std::size_t step : {1, 3}) rig.transport.script[step] = follow(step);
  Executor executor(rig.outline, rig.program, 0, rig.device, rig.transport);
  const Timeline& timeline = executor.run(rig.bindings);
  loader.join();
  CHECK(followed == std::array<std::size_t, 4>{1, 2, 1, 0});
  CHECK(timeline.spans.front().start_s >= 0.005);
}

TEST_CASE("Results are stored behind all steps, which need not have ended on the host") {
  Rig rig;
  const auto exchange = std::make_shared<ManualState>(), results = std::make_shared<ManualState>();
  rig.transport.script[3] = [&](std::span<const Event>) { return Event(exchange); };
  std::thread gpu;
  rig.device.on_store = [&](std::span<const Event> steps) {
    CHECK(steps.size() == 4);
    CHECK(!steps[3].done());
    gpu = std::thread([&] {
      exchange->complete();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      results->complete();
    });
    return Event(results);
  };
  Executor executor(rig.outline, rig.program, 0, rig.device, rig.transport);
  executor.run(rig.bindings);
  CHECK(results->done());
  gpu.join();
  rig.device.on_store = [](std::span<const Event>) {
    return Event::failed(std::make_exception_ptr(Error(ErrorKind::environment, "rank 0, results: no room")));
  };
  CHECK(message_of([&] { executor.run(rig.bindings); }) == "rank 0, results: no room");
  CHECK(rig.log.aborts.size() == 2);
}

TEST_CASE("Nothing touches the caller's tensors any more when a run has failed") {
  for (const bool late : {false, true}) {
    Rig rig;
    const auto inputs = std::make_shared<ManualState>(), results = std::make_shared<ManualState>();
    const auto exchange = std::make_shared<ManualState>();
    rig.device.loaded = Event(inputs);
    const auto goes_on = [](std::span<const Event>) { return Event(); };
    for (const std::size_t step : {0, 2}) rig.device.script[step] = goes_on;
    rig.transport.script[1] = goes_on;
    rig.transport.script[3] = [&](std::span<const Event>) -> Event {
      if (!late) throw Error(ErrorKind::peer, "rank 1 is gone");
      return Event(exchange);
    };
    std::thread gpu;
    const auto end_soon = [&] {
      gpu = std::thread([&] {
        exchange->complete(std::make_exception_ptr(Error(ErrorKind::peer, "rank 1 is gone")));
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        inputs->complete();
        results->complete();
      });
    };
    rig.device.on_store = [&](std::span<const Event>) {
      end_soon();
      return Event(results);
    };
    if (!late) end_soon();
    Executor executor(rig.outline, rig.program, 0, rig.device, rig.transport);
    CHECK(message_of([&] { executor.run(rig.bindings); }) == "rank 1 is gone");
    CHECK(inputs->done());
    CHECK((!late || results->done()));
    gpu.join();
  }
}

TEST_CASE("Tensors that are not the rank's shard are refused before anything begins") {
  Rig rig;
  Executor executor(rig.outline, rig.program, 0, rig.device, rig.transport);
  rig.bindings.k.shape[1] = 5;
  const std::string message = message_of([&] { executor.run(rig.bindings); });
  CHECK(message.find("rank 0's k is 1x5x1x8 (its shard is 1x4x1x8") != message.npos);
  CHECK(rig.log.aborts.empty());
  CHECK(rig.log.submitted.empty());
  rig.bindings.k.shape[1] = 4;
  const auto strides = std::exchange(rig.bindings.o.strides, {});  // as where none were set
  CHECK(message_of([&] { executor.run(rig.bindings); }).find("rank 0's o of 1x4x1x8 has stride 0 along tokens") == 0);
  CHECK(rig.log.submitted.empty());
  rig.bindings.o.strides = {32, 4, 4, 1};  // the second half of a row is the first of the next
  CHECK_THAT(message_of([&] { executor.run(rig.bindings); }),
             contains_text("has stride 4 along tokens and 1 along dim"));
  for (const std::int64_t far : {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    rig.bindings.o.strides = {32, far, 8, 1};
    CHECK_THAT(message_of([&] { executor.run(rig.bindings); }), contains_text("further than memory reaches"));
  }
  rig.bindings.o.strides = strides;
  const auto lse = std::exchange(rig.bindings.lse.data, rig.bindings.o.data);
  CHECK_THAT(message_of([&] { executor.run(rig.bindings); }),
             contains_text("rank 0's o and lse begin at the same place"));
  rig.bindings.lse.data = lse;
  ++rig.bindings.q.data;
  CHECK(message_of([&] { executor.run(rig.bindings); }).find("rank 0's q begins between two boundaries") == 0);
  --rig.bindings.q.data;
  rig.bindings.lse.dtype = DType::fp16;
  CHECK(message_of([&] { executor.run(rig.bindings); }).find("rank 0's lse is fp16") == 0);
  rig.bindings.lse.dtype = DType::fp32;
  executor.run(rig.bindings);
  CHECK_FALSE(rig.log.submitted.empty());
}

TEST_CASE("Unsuitable engines are refused before anything is allocated") {
  Rig rig;
  rig.device.why = "no such kernel";
  CHECK(message_of([&] { Executor(rig.outline, rig.program, 0, rig.device, rig.transport); }) == "no such kernel");
  rig.device.why.clear();
  rig.transport.reaches_host = false;
  const std::string message = message_of([&] { Executor(rig.outline, rig.program, 0, rig.device, rig.transport); });
  CHECK(message.find("does not reach that memory") != message.npos);
}

TEST_CASE("The second run allocates nothing") {
  Rig rig;
  rig.log.submitted.reserve(100);
  Executor executor(rig.outline, rig.program, 0, rig.device, rig.transport);
  executor.run(rig.bindings);
  const std::size_t before = test::allocations;
  for (int run = 0; run < 3; ++run) executor.run(rig.bindings);
  CHECK(test::allocations == before);
}

}  // namespace
}  // namespace distattn
