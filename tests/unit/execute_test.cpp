#include "distattn/execute.hpp"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "catch.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/hand_made.hpp"

namespace distattn {
namespace {

using test::block_outline;
using test::ProgramWriter;

/// Completes when told to, or at once.
class ManualState final : public Event::State {
 public:
  bool done() const override {
    const std::scoped_lock lock(mutex_);
    return complete_;
  }
  void wait() const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return complete_; });
    if (error_) std::rethrow_exception(error_);
  }
  Event::Clock::time_point ended_at() const override { return at_; }
  void complete(std::exception_ptr error = nullptr) {
    const std::scoped_lock lock(mutex_);
    if (complete_) return;
    complete_ = true;
    error_ = error;
    at_ = Event::Clock::now();
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool complete_ = false;
  std::exception_ptr error_;
  Event::Clock::time_point at_{};
};

/// What both engines of one rank were asked, in the order in which they were asked.
struct Log {
  std::mutex mutex;
  std::vector<const Step*> submitted;
  std::vector<std::string> aborts;

  std::size_t place(const Step& step) {
    const std::scoped_lock lock(mutex);
    return static_cast<std::size_t>(std::find(submitted.begin(), submitted.end(), &step) - submitted.begin());
  }
};

/// Runs nothing: notes each step and does what the test says about it.
template <class Base>
class ScriptedEngine : public Base {
 public:
  explicit ScriptedEngine(Log& log) : log_(log) {}

  Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) override {
    {
      const std::scoped_lock lock(log_.mutex);
      log_.submitted.push_back(&step);
    }
    if (const auto found = script.find(buffers.index_of(step)); found != script.end()) return found->second(after);
    for (const Event& event : after) event.wait();
    return {};
  }
  void abort(const Error& error) noexcept override {
    {
      const std::scoped_lock lock(log_.mutex);
      log_.aborts.push_back(error.what());
    }
    ended.complete(std::make_exception_ptr(Error(ErrorKind::peer, "ended")));
  }

  using Action = std::function<Event(std::span<const Event>)>;
  std::map<std::size_t, Action> script;  // by index of the step
  ManualState ended;                     // complete once aborted

 private:
  Log& log_;
};

class ScriptedDevice final : public ScriptedEngine<Device> {
 public:
  using ScriptedEngine::ScriptedEngine;
  std::string_view name() const override { return "scripted"; }
  MemorySpace space() const override { return MemorySpace::host; }
  std::string why_not(const Problem&, Pass) const override { return why; }
  std::unique_ptr<BufferTable> allocate(const Outline& outline, const RankProgram& program, Rank rank) override {
    const std::shared_ptr<std::byte> memory(static_cast<std::byte*>(std::aligned_alloc(64, slots_bytes(program) + 64)),
                                            std::free);
    return std::make_unique<BufferTable>(outline, program, rank, space(), memory);
  }
  void load(const Bindings&, BufferTable&) override {
    ++loads;
    if (on_load) on_load();
  }
  void store(const BufferTable&, const Bindings&) override { ++stores; }

  std::string why;
  std::function<void()> on_load;
  int loads = 0, stores = 0;
};

class ScriptedTransport final : public ScriptedEngine<Transport> {
 public:
  using ScriptedEngine::ScriptedEngine;
  std::string_view name() const override { return "scripted"; }
  Rank rank() const override { return 0; }
  int size() const override { return 2; }
  bool reaches(MemorySpace) const override { return reaches_host; }
  void computing(int number) noexcept override { last_number = std::max(last_number, number); }
  void on_failure(std::function<void(const Error&)> to) override { listener = std::move(to); }

  bool reaches_host = true;
  int last_number = -1;
  std::function<void(const Error&)> listener;
};

/// Rank 0 of two: compute 0 → near 0 → compute 1, and near 1 beside compute 1.
struct Rig {
  Rig() {
    ProgramWriter writer(outline);
    const BufferId query = writer.buffer({ValueKind::query, 0, SegmentId{0}, -1});
    const BufferId own = writer.buffer({ValueKind::key_value, 0, SegmentId{0}, -1});
    const BufferId other = writer.buffer({ValueKind::key_value, 0, SegmentId{1}, -1});
    const BufferId output = writer.buffer({ValueKind::output, 0, SegmentId{0}, 0});
    const StepId first = writer.step(Lane::compute, 0, {Clear{output}});
    const StepId exchange = writer.step(Lane::near, 0, {Send{own, 1}, Recv{other, 1}}, {first});
    writer.step(Lane::compute, 1, {Attend{query, output, {{other}}, Start::carry}}, {exchange});
    writer.step(Lane::near, 1, {Send{own, 1}});
    program = writer.take();

    const Problem& problem = outline.sharding.problem;
    tensor.resize(static_cast<std::size_t>(4 * problem.head_dim));
    auto* data = reinterpret_cast<std::byte*>(tensor.data());
    const TensorView matrix = dense_view(data, DType::fp32, 1, 4, 1, 8);
    bindings.q = bindings.k = bindings.v = matrix;
    bindings.o = matrix;
    bindings.lse = statistics_view(data, DType::fp32, 1, 1, 4);
  }

  Outline outline = block_outline(2, 4);
  RankProgram program;
  Log log;
  ScriptedDevice device{log};
  ScriptedTransport transport{log};
  std::vector<float> tensor;
  Bindings bindings;
};

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

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

TEST_CASE("An exchange is known by its number, lane and due where a group hands over a copy") {
  Rig rig;
  const auto buffers = rig.device.allocate(rig.outline, rig.program, 0);
  for (std::size_t i = 0; i < rig.program.steps.size(); ++i) CHECK(buffers->index_of(rig.program.steps[i]) == i);
  Step renamed = rig.program.steps[3];
  std::get<Send>(renamed.ops[0]).to = 7;
  CHECK(buffers->index_of(renamed) == 3);
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

TEST_CASE("Tensors that are not the rank's shard are refused before anything begins") {
  Rig rig;
  Executor executor(rig.outline, rig.program, 0, rig.device, rig.transport);
  rig.bindings.k.shape[1] = 5;
  const std::string message = message_of([&] { executor.run(rig.bindings); });
  CHECK(message.find("rank 0's k is 1x5x1x8 (its shard is 1x4x1x8") != message.npos);
  CHECK(rig.log.aborts.empty());
  CHECK(rig.log.submitted.empty());
  rig.bindings.k.shape[1] = 4;
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
