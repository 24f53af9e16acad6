/// What every device must do. It knows no backend: see device_world.hpp.

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "cli/tools/tolerance.hpp"
#include "distattn/device_tensors.hpp"
#include "tests/conformance/device_case.hpp"
#include "tests/support/message_of.hpp"

namespace distattn::test {
namespace {

constexpr std::uint64_t seed = 71;

/// Runs `check` for each device of this program.
void for_each_device(const std::function<void(const DeviceKind&)>& check) {
  for (const DeviceKind& kind : device_world()) {
    CAPTURE(kind.name);
    check(kind);
  }
}

TEST_CASE("A run of several steps gives what float64 gives, and again with other inputs") {
  for_each_device([](const DeviceKind& kind) {
    const Problem problem = problem_of(kind);
    const auto device = kind.make({});
    Both both(*device, problem);
    for (const std::uint64_t draw : {seed, seed + 1}) {
      const Inputs inputs(problem, draw);
      CHECK(error_of(both.run(inputs), inputs) <= tolerance(problem, 12));
    }
  });
}

TEST_CASE("Tensors may lie anyhow, and what lies between their elements is kept") {
  for_each_device([](const DeviceKind& kind) {
    const Inputs inputs(problem_of(kind), seed);
    const auto device = kind.make({});
    Both both(*device, inputs.problem());
    const Results dense = both.run(inputs);
    for (const bool backwards : {false, true}) {
      CAPTURE(backwards);
      Tensors tensors(inputs, 5, backwards);
      const Results results = both.run(tensors);
      CHECK(results.same_forward(dense));
      CHECK(error_of(results, inputs) <= tolerance(inputs.problem(), 12));
      for (const Tensor* tensor : tensors.results()) CHECK(tensor->keeps_gaps());
    }
  });
}

TEST_CASE("A device takes tensors in the host's memory and in its own") {
  for_each_device([](const DeviceKind& kind) {
    const Inputs inputs(problem_of(kind), seed);
    const auto device = kind.make({});
    CHECK(device->takes(MemorySpace::host));
    CHECK(device->takes(device->space()));
    Both both(*device, inputs.problem());
    Tensors here(inputs), copied(inputs);
    const Results on_host = both.run(here);
    DeviceTensors there(*device, copied.bindings);
    CHECK(there.bindings().q.space == device->space());
    both.forward.run(there.bindings());
    both.backward.run(there.bindings());
    there.fetch();
    CHECK(Results(copied).same_forward(on_host));
    CHECK(error_of(Results(copied), inputs) <= tolerance(inputs.problem(), 12));
  });
}

TEST_CASE("A device says why it does not compute a problem, and nothing of one that it does") {
  for_each_device([](const DeviceKind& kind) {
    const auto device = kind.make({});
    CHECK_FALSE(device->name().empty());
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      Problem problem = problem_of(kind);
      CHECK(device->why_not(problem, pass) == "");
      if (!kind.beyond) continue;
      kind.beyond(problem);
      CHECK(device->why_not(problem, pass) != "");
    }
  });
}

TEST_CASE("A compute step starts after the events that it is given") {
  for_each_device([](const DeviceKind& kind) {
    const Inputs inputs(problem_of(kind), seed);
    const auto device = kind.make({});
    Made made(*device, inputs.problem(), Pass::forward);
    Tensors tensors(inputs);
    made.load(tensors.bindings);
    const auto gate = std::make_shared<Gate>();
    std::atomic<bool> was_opened = false;
    std::thread opener([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      was_opened = true;
      gate->open();
    });
    made.submit(0, {Event(gate)}).wait();
    CHECK(was_opened);
    opener.join();
    for (std::size_t number = 1; number < made.steps(); ++number) made.submit(number);
    made.finish(tensors.bindings);
    CHECK_FALSE(tensors.o.is_untouched());
  });
}

TEST_CASE("What a step waits for in vain is said with rank and step, and results are left alone") {
  for_each_device([](const DeviceKind& kind) {
    const Inputs inputs(problem_of(kind), seed);
    const auto device = kind.make({});
    Made made(*device, inputs.problem(), Pass::forward);
    Tensors tensors(inputs);
    made.load(tensors.bindings);
    const Event cut = Event::failed(std::make_exception_ptr(Error(ErrorKind::peer, "the wire is cut")));
    const std::string message = message_of([&] { made.submit(0, {cut}).wait(); });
    CAPTURE(message);
    CHECK(message.rfind(place_of(0, made.step(0)) + ": ", 0) == 0);
    CHECK(message.find("the wire is cut") != message.npos);
    CHECK(message_of([&] { made.store(tensors.bindings).wait(); }).find("the wire is cut") != message.npos);
    CHECK(tensors.is_untouched());
  });
}

TEST_CASE(
    "After an abort everything fails with its reason, whichever program it is of, and no result is written any more") {
  for_each_device([](const DeviceKind& kind) {
    for (const std::size_t steps_before : {0, 3}) {
      CAPTURE(steps_before);
      const Inputs inputs(problem_of(kind), seed);
      const auto device = kind.make({});
      Both both(*device, inputs.problem());
      Tensors tensors(inputs), others(inputs);
      const auto tells = [](const std::function<void()>& action) {
        const std::string message = message_of(action);
        CAPTURE(message);
        CHECK(message.find("out of ink") != message.npos);
      };
      both.forward.load(tensors.bindings);
      REQUIRE(both.forward.steps() == 3);
      for (std::size_t number = 0; number < steps_before; ++number) both.forward.submit(number).wait();
      device->abort(Error(ErrorKind::environment, "out of ink"));
      device->abort(Error(ErrorKind::peer, "too late to matter"));
      const Results so_far(tensors);  // steps may have written results where they belong
      for (std::size_t number = steps_before; number < 3; ++number) tells([&] { both.forward.submit(number).wait(); });
      tells([&] { both.forward.store(tensors.bindings).wait(); });
      tells([&] { both.backward.load(others.bindings).wait(); });
      tells([&] { both.backward.submit(0).wait(); });
      tells([&] { both.backward.store(others.bindings).wait(); });
      CHECK(Results(tensors) == so_far);
      if (steps_before == 0) CHECK(tensors.is_untouched());
      CHECK(others.is_untouched());
    }
  });
}

TEST_CASE("Two programs of a device run at a time, step by step and from two threads") {
  for_each_device([](const DeviceKind& kind) {
    const std::array<Inputs, 2> inputs{Inputs(problem_of(kind), seed), Inputs(problem_of(kind, 19), seed + 1)};
    const auto device = kind.make({});
    std::vector<Results> alone;
    for (const Inputs& each : inputs) alone.push_back(compute(*device, each));

    Made first(*device, inputs[0].problem(), Pass::forward), second(*device, inputs[1].problem(), Pass::forward);
    Tensors one(inputs[0]), other(inputs[1]);
    first.load(one.bindings);
    second.load(other.bindings);
    for (std::size_t number = 0; number < first.steps(); ++number) {
      first.submit(number);
      second.submit(number);
    }
    second.finish(other.bindings);
    first.finish(one.bindings);
    CHECK(Results(one).same_forward(alone[0]));
    CHECK(Results(other).same_forward(alone[1]));

    std::array<std::optional<Both>, 2> programs;
    for (std::size_t i = 0; i < 2; ++i) programs[i].emplace(*device, inputs[i].problem());
    std::array<int, 2> wrong{};
    const auto run = [&](std::size_t i) {
      for (int round = 0; round < 2; ++round) {
        const Results results = programs[i]->run(inputs[i]);
        wrong[i] += results.same_forward(alone[i]) && error_of(results, inputs[i]) <= tolerance(inputs[i].problem(), 12)
                        ? 0
                        : 1;
      }
    };
    std::thread beside(run, 1);
    run(0);
    beside.join();
    CHECK(wrong == std::array<int, 2>{});
  });
}

TEST_CASE("Results do not depend on what the memory held before") {
  for_each_device([](const DeviceKind& kind) {
    const Inputs inputs(problem_of(kind), seed), before(problem_of(kind), seed + 1);
    const auto keeper = kind.make({});
    DeviceOptions options;
    if (kind.repeats) options.gradient_order = GradientOrder::fixed;
    std::optional<Results> first;
    const auto compare = [&](const Results& results) {
      if (!first) first = results;
      CHECK(results.same_forward(*first));
      if (kind.repeats) CHECK(results == *first);
    };
    for (const int held : {0x00, 0xff}) {  // zeros, and what is no number in any element type
      CAPTURE(held);
      options.allocator = [&](std::size_t bytes) {
        auto memory = keeper->allocate_tensor(bytes);
        const std::vector<std::byte> full(bytes, static_cast<std::byte>(held));
        keeper->copy(memory.get(), full.data(), bytes);
        return memory;
      };
      const auto device = kind.make(options);
      Both both(*device, inputs.problem());
      compare(both.run(inputs));
      both.run(before);
      compare(both.run(inputs));
    }
  });
}

}  // namespace
}  // namespace distattn::test
