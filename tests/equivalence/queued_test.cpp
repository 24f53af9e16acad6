/// Passes that are queued: what they compute, in which order they run, and who learns how they ended.

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "backends/host/device.hpp"
#include "catch.hpp"
#include "cli/tools/random.hpp"
#include "distattn/attention.hpp"
#include "distattn/inproc.hpp"
#include "distattn/subgroup.hpp"

using namespace distattn;

namespace {

Problem small_problem() {
  Problem problem;
  problem.seq_q = problem.seq_kv = 40;
  problem.heads = 4;
  problem.kv_heads = 2;
  problem.head_dim = problem.value_dim = 8;
  problem.mask = causal_mask();
  return problem;
}

ScheduleRequest options_of(const std::string& schedule) {
  ScheduleRequest options;
  options.schedule = schedule;
  options.passes = Passes::both;
  return options;
}

std::unique_ptr<Device> small_device(int ranks, const kernels::HostKernels& kernels = kernels::reference_kernels()) {
  return backends::make_host_device(kernels, {1, ranks});
}

/// A rank's tensors of one layer.
struct Layer {
  Layer(const Attention& attention, const Problem& problem, std::uint64_t seed) {
    const std::int64_t queries = attention.query_tokens(), keys = attention.key_tokens();
    const auto random = [&](RandomTensor which, std::int64_t tokens, int heads, int dim) {
      const TensorView view = tensor(tokens, heads, dim);
      const std::int64_t count = tokens * heads * dim;
      fill_normal(seed, which, attention.plan().ranks() * count, count, DType::fp32, view.data);
      return view;
    };
    bindings.q = random(RandomTensor::q, queries, problem.heads, problem.head_dim);
    bindings.k = random(RandomTensor::k, keys, problem.kv_heads, problem.head_dim);
    bindings.v = random(RandomTensor::v, keys, problem.kv_heads, problem.value_dim);
    bindings.d_o = random(RandomTensor::d_o, queries, problem.heads, problem.value_dim);
    bindings.o = tensor(queries, problem.heads, problem.value_dim);
    bindings.lse = tensor(queries, problem.heads, 1);
    bindings.dq = tensor(queries, problem.heads, problem.head_dim);
    bindings.dk = tensor(keys, problem.kv_heads, problem.head_dim);
    bindings.dv = tensor(keys, problem.kv_heads, problem.value_dim);
  }
  TensorView tensor(std::int64_t tokens, int heads, int dim) {
    auto& data = memory.emplace_back(static_cast<std::size_t>(tokens * heads * dim));
    return dense_view(reinterpret_cast<std::byte*>(data.data()), DType::fp32, 1, tokens, heads, dim);
  }

  std::vector<std::vector<float>> memory;  // results too: equal where all of a layer is
  Bindings bindings;
};

/// Completes when the test says so.
class Gate final : public Event::State {
 public:
  bool done() const override {
    const std::scoped_lock lock(mutex_);
    return open_;
  }
  void wait() const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
    if (failure_) std::rethrow_exception(failure_);
  }
  Event::Clock::time_point ended_at() const override { return {}; }

  void open(std::exception_ptr failure = nullptr) {
    const std::scoped_lock lock(mutex_);
    open_ = true;
    failure_ = std::move(failure);
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool open_ = false;
  std::exception_ptr failure_;
};

template <class Action>
std::string failure_of(Action action) {
  try {
    action();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

const kernels::HostKernels& failing_kernels() {
  static const kernels::HostKernels failing = [] {
    kernels::HostKernels kernels = kernels::reference_kernels();
    kernels.attend = [](std::span<const kernels::AttendArgs>, kernels::Team&, const kernels::StopFlag&) {
      throw std::runtime_error("the kernel met a bad number");
    };
    return kernels;
  }();
  return failing;
}

/// For threads of ranks, which Catch's macros are not for: fails the run.
void expect(bool held, int line = __builtin_LINE()) {
  if (!held) throw std::logic_error("line " + std::to_string(line) + " of the test does not hold");
}

void expect_contains(const std::string& text, const std::string& part, int line = __builtin_LINE()) {
  if (text.find(part) == text.npos) {
    throw std::logic_error("line " + std::to_string(line) + " of the test: \"" + text + "\" has no \"" + part + "\"");
  }
}

void await(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::yield();
}

}  // namespace

TEST_CASE("queued passes compute what calls that wait do") {
  const Problem problem = small_problem();
  for (const int ranks : {1, 3}) {
    const auto plan = std::make_shared<const AttentionPlan>(problem, ranks, options_of("zigzag-ring"));
    run_ranks(ranks, [&](Rank rank, Transport& transport) {
      const auto device = small_device(ranks);
      Attention attention(plan, *device, transport);
      const auto seed = static_cast<std::uint64_t>(10 * rank);
      Layer waited[] = {{attention, problem, seed}, {attention, problem, seed + 1}};
      Layer queued[] = {{attention, problem, seed}, {attention, problem, seed + 1}};
      for (const Layer& layer : waited) attention.forward(layer.bindings);
      for (const Layer& layer : waited) attention.backward(layer.bindings);

      std::vector<Event> events;
      for (const Layer& layer : queued) events.push_back(attention.forward(layer.bindings, {}));
      for (const Layer& layer : queued) events.push_back(attention.backward(layer.bindings, {}));
      events.back().wait();
      for (const Event& event : events) expect(event.done());
      for (int i : {0, 1}) expect(queued[i].memory == waited[i].memory);
      expect(!(waited[0].memory == waited[1].memory));
      expect(attention.timeline(Pass::forward).spans.size() == attention.program(Pass::forward).steps.size());
      expect(attention.timeline(Pass::backward).seconds > 0);
    });
  }
}

TEST_CASE("a queued call returns while the other ranks have not called") {
  const Problem problem = small_problem();
  std::atomic<bool> returned = false;
  run_ranks(2, [&](Rank rank, Transport& transport) {
    const auto device = small_device(2);
    Attention attention(problem, options_of("ring"), *device, transport);
    const Layer layer(attention, problem, 3);
    if (rank == 1) await(returned);
    const Event first = attention.forward(layer.bindings, {}), second = attention.forward(layer.bindings, {});
    if (rank == 0) {
      expect(!first.done());
      expect(!second.done());
    }
    returned = true;
    attention.wait();
    expect(first.done());
    expect(second.done());
    attention.check();
  });
}

TEST_CASE("a queued pass begins after what it is told to") {
  const Problem problem = small_problem();
  for (const int ranks : {1, 2}) {
    run_ranks(ranks, [&](Rank, Transport& transport) {
      const auto device = small_device(ranks);
      Attention attention(problem, options_of("ring"), *device, transport);
      const Layer waited(attention, problem, 3);
      Layer queued(attention, problem, 3);
      attention.forward(waited.bindings);
      const std::vector<float> keys = std::exchange(queued.memory[1], std::vector<float>(queued.memory[1].size()));
      queued.bindings.k.data = reinterpret_cast<const std::byte*>(queued.memory[1].data());
      const auto gate = std::make_shared<Gate>();
      const Event event = attention.forward(queued.bindings, Event(gate));
      expect(!event.done());
      std::copy(keys.begin(), keys.end(), queued.memory[1].begin());
      gate->open();
      event.wait();
      expect(queued.memory == waited.memory);
    });
  }
}

TEST_CASE("calls that wait run behind queued passes") {
  const Problem problem = small_problem();
  run_ranks(2, [&](Rank, Transport& transport) {
    const auto device = small_device(2);
    Attention attention(problem, options_of("ring"), *device, transport);
    const Layer waited(attention, problem, 3), queued(attention, problem, 3);
    attention.forward(waited.bindings);
    attention.backward(waited.bindings);
    const Event event = attention.forward(queued.bindings, {});
    attention.backward(queued.bindings);
    expect(event.done());
    expect(queued.memory == waited.memory);
  });
}

TEST_CASE("handles that share a device or a transport take turns") {
  const Problem problem = small_problem();
  Problem other = problem;
  other.mask.left = 7;
  run_ranks(3, [&](Rank rank, Transport& transport) {
    const auto device = small_device(3);
    Subgroup turned(transport, {2, 0, 1});
    Attention first(problem, options_of("ring"), *device, transport);
    Attention second(other, options_of("ring"), *device, turned);
    const auto seed = static_cast<std::uint64_t>(10 * rank);
    const Layer waited[] = {{first, problem, seed}, {second, other, seed}};
    const Layer queued[] = {{first, problem, seed}, {second, other, seed}};
    first.forward(waited[0].bindings);
    second.forward(waited[1].bindings);
    for (int i = 0; i < 3; ++i) {
      first.forward(queued[0].bindings, {});
      second.forward(queued[1].bindings, {});
    }
    const Attention third(problem, options_of("ring"), *device, transport);  // its ranks agree when the queue is empty
    expect(queued[0].memory == waited[0].memory);
    expect(queued[1].memory == waited[1].memory);
    expect(!(queued[0].memory == queued[1].memory));
  });
}

TEST_CASE("a failure is told by events, check, wait and later calls, and names rank and step") {
  Problem problem = small_problem();
  problem.mask = full_mask();  // every rank needs all others
  const std::string message = failure_of([&] {
    run_ranks(3, [&](Rank rank, Transport& transport) {
      const auto device = small_device(3, rank == 2 ? failing_kernels() : kernels::reference_kernels());
      Attention attention(problem, options_of("ring"), *device, transport);
      const Layer layer(attention, problem, 3);
      attention.forward(layer.bindings, {});  // which ranks may end well that have sent what the failing one lacks
      Event second;
      const auto told = failure_of([&] {
        second = attention.forward(layer.bindings, {});
        second.wait();
      });
      expect_contains(told, "rank 2, step ");
      expect_contains(told, "the kernel met a bad number");
      expect(second.done());
      if (second.state() != nullptr) expect(failure_of([&] { second.wait(); }) == told);
      expect(failure_of([&] { attention.check(); }) == told);
      expect(failure_of([&] { attention.wait(); }) == told);
      expect(failure_of([&] { attention.timeline(Pass::forward); }) == told);
      expect(failure_of([&] { attention.forward(layer.bindings, {}); }) == told);
      expect(failure_of([&] { attention.backward(layer.bindings); }) == told);
      attention.wait();
    });
  });
  CHECK_THAT(message, contains_text("rank 2, step "));
}

TEST_CASE("passes behind one that fails fail alike") {
  const Problem problem = small_problem();
  for (const int ranks : {1, 2}) {
    const auto message = failure_of([&] {
      run_ranks(ranks, [&](Rank, Transport& transport) {
        const auto device = small_device(ranks, failing_kernels());
        Attention attention(problem, options_of("ring"), *device, transport);
        const Layer layer(attention, problem, 3);
        const auto gate = std::make_shared<Gate>();
        const Event events[] = {attention.forward(layer.bindings, Event(gate)), attention.forward(layer.bindings, {}),
                                attention.backward(layer.bindings, {})};
        gate->open(ranks == 1 ? std::make_exception_ptr(Error(ErrorKind::environment, "a flood")) : nullptr);
        const auto told = failure_of([&] { events[0].wait(); });
        expect(!(told.empty()));
        for (const Event& event : events) expect(failure_of([&] { event.wait(); }) == told);
        events[0].wait();
      });
    });
    CAPTURE(message);
    CHECK_THAT(message, contains_text(ranks == 1 ? "rank 0: what a pass was to begin after has failed: a flood"
                                                 : "the kernel met a bad number"));
  }
}

TEST_CASE("what a queued pass was to begin after ends all ranks if it fails") {
  const Problem problem = small_problem();
  const std::string message = failure_of([&] {
    run_ranks(2, [&](Rank rank, Transport& transport) {
      const auto device = small_device(2);
      Attention attention(problem, options_of("ring"), *device, transport);
      const Layer layer(attention, problem, 3);
      const auto flood = std::make_exception_ptr(Error(ErrorKind::environment, "a flood"));
      attention.forward(layer.bindings, rank == 1 ? Event::failed(flood) : Event());
      attention.wait();
    });
  });
  CHECK(message == "rank 1: what a pass was to begin after has failed: a flood");
}

TEST_CASE("tensors that are wrong are refused by the call, and nothing is queued") {
  const Problem problem = small_problem();
  run_ranks(2, [&](Rank rank, Transport& transport) {
    const auto device = small_device(2);
    Attention attention(problem, options_of("ring"), *device, transport);
    const Layer layer(attention, problem, 3);
    if (rank == 0) {
      Bindings wrong = layer.bindings;
      wrong.k.shape[1] = 3;
      expect_contains(failure_of([&] { attention.forward(wrong, {}); }), "rank 0's k is 1x3x2x8");
      attention.check();
    }
    attention.forward(layer.bindings, {}).wait();
  });
  ScheduleRequest forward_alone;
  forward_alone.schedule = "ring";
  run_ranks(1, [&](Rank, Transport& transport) {
    const auto device = small_device(1);
    Attention attention(problem, forward_alone, *device, transport);
    const Layer layer(attention, problem, 3);
    expect_contains(failure_of([&] { attention.backward(layer.bindings, {}); }), "was not prepared");
  });
}

TEST_CASE("a handle's end waits for its queued passes, and events outlive it") {
  const Problem problem = small_problem();
  run_ranks(2, [&](Rank, Transport& transport) {
    const auto device = small_device(2);
    std::optional<Attention> attention;
    attention.emplace(problem, options_of("ring"), *device, transport);
    const Layer waited(*attention, problem, 3), queued(*attention, problem, 3);
    attention->forward(waited.bindings);
    attention->backward(waited.bindings);
    attention->forward(queued.bindings, {});
    const Event last = attention->backward(queued.bindings, {});
    attention.reset();
    expect(last.done());
    last.wait();
    expect(queued.memory == waited.memory);
  });
}

TEST_CASE("an abort ends a queued pass whose ranks have not called") {
  const Problem problem = small_problem();
  const std::string message = failure_of([&] {
    run_ranks(2, [&](Rank rank, Transport& transport) {
      const auto device = small_device(2);
      Attention attention(problem, options_of("ring"), *device, transport);
      const Layer layer(attention, problem, 3);
      if (rank == 1) throw Error(ErrorKind::environment, "rank 1 has left");
      const Event event = attention.forward(layer.bindings, {});
      expect_contains(failure_of([&] { event.wait(); }), "rank 1 has left");
    });
  });
  CHECK(message == "rank 1 has left");
}
