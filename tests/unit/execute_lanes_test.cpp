#include <array>
#include <memory>
#include <thread>

#include "catch.hpp"
#include "distattn/execute.hpp"
#include "tests/unit/scripted_rank.hpp"

namespace distattn {
namespace {

using test::ManualState;
using test::Rig;

TEST_CASE("Lanes submit their own steps in order, and after what they wait for") {
  Rig rig;
  Executor executor(rig.outline, rig.program, 0, rig.device, rig.transport);
  executor.run(rig.bindings);

  const auto& steps = rig.program.steps;
  CHECK(rig.log.submitted.size() == 4);
  CHECK(rig.log.place(steps[0]) < rig.log.place(steps[1]));
  CHECK(rig.log.place(steps[1]) < rig.log.place(steps[2]));
  CHECK(rig.log.place(steps[1]) < rig.log.place(steps[3]));
  CHECK(rig.device.loads == 1);
  CHECK(rig.device.stores == 1);
  CHECK(rig.transport.last_number == 1);
}

TEST_CASE("An exchange that the caller waits for is run by its thread; one that overlaps, by the lane's") {
  Rig rig;
  auto overlapped = std::make_unique<ManualState>();
  std::thread::id awaited_on, overlapped_on;
  rig.transport.script[1] = [&](std::span<const Event>) {
    awaited_on = std::this_thread::get_id();
    return Event();
  };
  rig.device.script[2] = [&](std::span<const Event>) {
    overlapped->wait();
    return Event();
  };
  rig.transport.script[3] = [&](std::span<const Event>) {
    overlapped_on = std::this_thread::get_id();
    overlapped->complete();
    return Event();
  };
  Executor executor(rig.outline, rig.program, 0, rig.device, rig.transport);
  executor.run(rig.bindings);
  // From here on the lane's thread is known to sleep.
  overlapped = std::make_unique<ManualState>();
  executor.run(rig.bindings);
  CHECK(awaited_on == std::this_thread::get_id());
  CHECK(overlapped_on != std::this_thread::get_id());
  CHECK(overlapped_on != std::thread::id());
}

TEST_CASE("A message goes from one lane on to the next while tiles are computed") {
  Rig rig;
  RankProgram& program = rig.program;
  const std::vector<Op> send = program.steps[3].ops;
  program.steps[1].lane = Lane::far;
  program.steps[1].after.clear();
  program.steps[2].after.clear();
  program.steps[3].after = {StepId{1}};
  program.steps.push_back({2, 2, Lane::far, send, {StepId{3}}});
  ManualState arrived;
  for (const std::size_t compute : {0, 2}) {
    rig.device.script[compute] = [&](std::span<const Event>) {
      arrived.wait();
      return Event();
    };
  }
  rig.transport.script[4] = [&](std::span<const Event>) {
    arrived.complete();
    return Event();
  };
  Executor(rig.outline, program, 0, rig.device, rig.transport).run(rig.bindings);
  CHECK(rig.log.place(program.steps[1]) < rig.log.place(program.steps[3]));
  CHECK(rig.log.place(program.steps[3]) < rig.log.place(program.steps[4]));
  CHECK(rig.log.place(program.steps[4]) < rig.log.place(program.steps[2]));
}

TEST_CASE("No exchange waits for another that its rank is in") {
  Rig rig;
  RankProgram& program = rig.program;
  std::swap(program.steps[2], program.steps[3]);
  const std::vector<Op> send = program.steps[2].ops;
  program.steps[2] = {0, 0, Lane::far, send, {StepId{0}}};
  program.steps[3].after = {StepId{1}, StepId{2}};
  program.steps.push_back({1, 1, Lane::near, send, {}});

  // The far exchange ends only when both near ones have begun, the second of which no tile needs.
  std::array<std::unique_ptr<ManualState>, 3> begun;
  const auto script = [&](std::size_t step, std::size_t mine, std::vector<std::size_t> others) {
    rig.transport.script[step] = [&begun, mine, others](std::span<const Event>) {
      begun[mine]->complete();
      for (const std::size_t other : others) begun[other]->wait();
      return Event();
    };
  };
  script(1, 0, {1});
  script(2, 1, {0, 2});
  script(4, 2, {});
  Executor executor(rig.outline, program, 0, rig.device, rig.transport);
  for (int run = 0; run < 2; ++run) {  // the second: with threads that are known to sleep
    for (auto& state : begun) state = std::make_unique<ManualState>();
    rig.log.submitted.clear();
    executor.run(rig.bindings);
    CHECK(rig.log.submitted.size() == 5);
    CHECK(rig.log.place(program.steps[3]) == 4);
  }
}

TEST_CASE("A run ends whichever lane ends last") {
  Rig rig;
  Executor executor(rig.outline, rig.program, 0, rig.device, rig.transport);
  for (int run = 0; run < 100'000; ++run) {
    rig.log.submitted.clear();
    executor.run(rig.bindings);
  }
  CHECK(rig.log.submitted.size() == 4);
}

TEST_CASE("Nothing is exchanged before inputs are loaded") {
  Rig rig;
  rig.program.steps[1].after.clear();
  std::size_t submitted = 0;
  rig.device.on_load = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const std::scoped_lock lock(rig.log.mutex);
    submitted = rig.log.submitted.size();
  };
  Executor(rig.outline, rig.program, 0, rig.device, rig.transport).run(rig.bindings);
  CHECK(submitted == 0);
  CHECK(rig.log.submitted.size() == 4);
}

TEST_CASE("A step is submitted with the events of others that have not ended") {
  Rig rig;
  auto exchange = std::make_shared<ManualState>();
  rig.transport.script[1] = [&](std::span<const Event>) { return Event(exchange); };
  bool pending = false;
  rig.device.script[2] = [&](std::span<const Event> after) {
    pending = after.size() == 1 && after[0].state() == exchange.get() && !after[0].done();
    exchange->complete();
    return Event();
  };
  Executor(rig.outline, rig.program, 0, rig.device, rig.transport).run(rig.bindings);
  CHECK(pending);
}

}  // namespace
}  // namespace distattn
