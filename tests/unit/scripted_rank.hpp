#pragma once
/// A rank whose device and transport do what a test says about each step, and note what they were asked.

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "distattn/engine.hpp"
#include "tests/support/hand_made.hpp"

namespace distattn::test {

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

/// What device and transport of one rank were asked, in the order in which they were asked.
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
class Script {
 public:
  explicit Script(Log& log) : log_(log) {}

  using Action = std::function<Event(std::span<const Event>)>;
  std::map<std::size_t, Action> script;  // by index of the step
  ManualState ended;                     // complete once aborted

 protected:
  Event run(const Step& step, const BufferTable& buffers, std::span<const Event> after) {
    {
      const std::scoped_lock lock(log_.mutex);
      log_.submitted.push_back(&step);
    }
    if (const auto found = script.find(buffers.index_of(step)); found != script.end()) return found->second(after);
    for (const Event& event : after) event.wait();
    return {};
  }
  void end(const Error& error) noexcept {
    {
      const std::scoped_lock lock(log_.mutex);
      log_.aborts.push_back(error.what());
    }
    ended.complete(std::make_exception_ptr(Error(ErrorKind::peer, "ended")));
  }

 private:
  Log& log_;
};

class ScriptedDevice final : public Device, public Script {
 public:
  using Script::Script;
  std::string_view name() const override { return "scripted"; }
  MemorySpace space() const override { return MemorySpace::host; }
  Features features(Pass) const override { return computed; }
  std::string objection(const Problem&, Pass) const override { return why; }
  std::unique_ptr<DeviceProgram> allocate(const Outline& outline, const RankProgram& program, Rank rank) override {
    return std::make_unique<Program>(*this, outline, program, rank);
  }
  void abort(const Error& error) noexcept override { end(error); }

  Features computed = all_features();
  std::string why;
  std::function<void()> on_load;
  Event loaded;
  Action on_store;
  int loads = 0, stores = 0;

 private:
  class Program final : public DeviceProgram {
   public:
    Program(ScriptedDevice& device, const Outline& outline, const RankProgram& program, Rank rank)
        : DeviceProgram(
              outline, program, rank, MemorySpace::host,
              {static_cast<std::byte*>(std::aligned_alloc(buffer_alignment, slots_bytes(program) + buffer_alignment)),
               std::free}),
          device_(device) {}

    Event load(const Bindings&) override {
      ++device_.loads;
      if (device_.on_load) device_.on_load();
      return device_.loaded;
    }
    Event submit(const Step& step, std::span<const Event> after) override { return device_.run(step, *this, after); }
    Event store(const Bindings&, std::span<const Event> steps) override {
      ++device_.stores;
      if (device_.on_store) return device_.on_store(steps);
      for (const Event& step : steps) step.wait();
      return {};
    }

   private:
    ScriptedDevice& device_;
  };
};

class ScriptedTransport final : public Transport, public Script {
 public:
  using Script::Script;
  std::string_view name() const override { return "scripted"; }
  Rank rank() const override { return 0; }
  int size() const override { return 2; }
  bool reaches(MemorySpace) const override { return reaches_host; }
  void prepare(BufferTable& buffers) override {
    prepared.push_back(&buffers);
    if (on_prepare) on_prepare();
  }
  Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) override {
    return run(step, buffers, after);
  }
  void abort(const Error& error) noexcept override { end(error); }
  void computing(int number) noexcept override { last_number = std::max(last_number, number); }
  void on_failure(std::function<void(const Error&)> to) override { listener = std::move(to); }

  bool reaches_host = true;
  int last_number = -1;
  std::function<void(const Error&)> listener;
  std::function<void()> on_prepare;
  std::vector<const BufferTable*> prepared;
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
    const auto count = static_cast<std::size_t>(4 * problem.head_dim);
    tensors.resize(3 * count);
    bindings.q = bindings.k = bindings.v = dense_view(tensors.data(), 1, 4, 1, 8);
    bindings.o = dense_view(tensors.data() + count, 1, 4, 1, 8);
    bindings.lse = statistics_view(tensors.data() + 2 * count, 1, 1, 4);
  }

  Outline outline = block_outline(2, 4);
  RankProgram program;
  Log log;
  ScriptedDevice device{log};
  ScriptedTransport transport{log};
  std::vector<float> tensors;
  Bindings bindings;
};

}  // namespace distattn::test
