/// Passes that are queued on an emulated GPU: what the host waits for, and what the caller's stream does.

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "backends/cuda/device.hpp"
#include "simt/device_case.hpp"
#include "simt/queue.hpp"
#include "tests/support/one_memory.hpp"

namespace {

using namespace distattn;
using namespace simt;
using test::Inputs;

constexpr int tokens = 20, dim = 8;
constexpr std::size_t bytes = tokens * dim * sizeof(float);

Problem small_problem() { return problem_of(DType::fp32, tokens, 1, 1, dim, dim); }

std::unique_ptr<backends::cuda::Stream> new_stream() { return gpu->make_stream(backends::StreamPriority::normal); }

/// On the caller's stream, or for null on one of its own.
std::unique_ptr<Device> device_on(backends::cuda::Stream* stream) {
  DeviceOptions options;
  if (stream != nullptr) options.gpu.stream = stream->handle();
  return backends::cuda::make_cuda_device(*gpu, options);
}

ScheduleRequest ring() {
  ScheduleRequest options;
  options.schedule = "ring";
  options.passes = Passes::both;
  return options;
}

/// Work that ends when the test opens it, or when a thread of the host has begun to wait for the GPU, which would last
/// for good otherwise.
class Barrier {
 public:
  explicit Barrier(backends::cuda::Stream& stream) : before_(EmulatedDriver::host_waits()) {
    static_cast<Queue*>(stream.handle())->submit([this] {
      while (!open_ && host_waits() == 0) std::this_thread::yield();
    });
  }
  int host_waits() const { return EmulatedDriver::host_waits() - before_; }
  void open() { open_ = true; }

 private:
  const int before_;
  std::atomic<bool> open_{false};
};

/// One layer's tensors on the GPU, of a rank that has all.
struct Layer {
  explicit Layer(const Inputs& inputs) {
    bindings.q = with(inputs.q());
    bindings.k = with(inputs.k());
    bindings.v = with(inputs.v());
    bindings.d_o = with(inputs.d_o());
    bindings.o = empty();
    bindings.lse = empty(1);
    bindings.dq = empty();
    bindings.dk = empty();
    bindings.dv = empty();
  }
  TensorView empty(int width = dim) {
    auto& data = memory.emplace_back(gpu->allocate(bytes, MemorySpace::cuda));
    TensorView view = dense_view(data.get(), DType::fp32, 1, tokens, 1, width);
    view.space = MemorySpace::cuda;
    return view;
  }
  TensorView with(const ConstTensorView& values) {
    const TensorView view = empty();
    std::memcpy(view.data, values.data, bytes);
    return view;
  }

  std::vector<std::shared_ptr<std::byte>> memory;
  Bindings bindings;
};

/// A tensor's copy on the host, once the stream comes to it.
struct Copied {
  Copied(const TensorView& tensor, backends::cuda::Stream& stream) : memory(gpu->allocate(bytes, MemorySpace::host)) {
    stream.copy(memory.get(), tensor.data, bytes);
  }
  bool is(const std::vector<double>& exact) const {
    const auto* const values = reinterpret_cast<const float*>(memory.get());
    for (std::size_t i = 0; i < exact.size(); ++i) {
      if (!(std::abs(values[i] - exact[i]) < 1e-5)) return false;
    }
    return true;
  }
  std::shared_ptr<std::byte> memory;
};

std::string failure_of(const Event& event) {
  try {
    event.wait();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("nothing waits on the host between the layers of one rank", "[simt]") {
  gpu = std::make_unique<EmulatedDriver>(device_seed);
  const Problem problem = small_problem();
  const Inputs inputs[] = {{problem, 1}, {problem, 2}};
  const auto stream = new_stream();
  run_ranks(1, [&](Rank, Transport& transport) {
    const auto device = device_on(stream.get());
    Attention attention(problem, ring(), *device, transport);
    const Layer layers[] = {Layer(inputs[0]), Layer(inputs[1])};
    Barrier barrier(*stream);
    std::vector<Event> events;
    std::vector<Copied> outputs, gradients;
    for (const Layer& layer : layers) {
      events.push_back(attention.forward(layer.bindings, {}));
      outputs.emplace_back(layer.bindings.o, *stream);  // the caller's own work, behind the pass
    }
    for (const Layer& layer : layers) {
      events.push_back(attention.backward(layer.bindings, events.back()));
      gradients.emplace_back(layer.bindings.dk, *stream);
    }
    attention.check();
    for (const Event& event : events) CHECK_FALSE(event.done());
    CHECK(barrier.host_waits() == 0);
    barrier.open();
    events.back().wait();
    stream->finish();
    for (const Event& event : events) CHECK(event.done());
    for (std::size_t i : {0, 1}) {
      const Inputs& in = inputs[i];
      const ExactResult exact = exact_attention(problem, in.q(), in.k(), in.v(), in.d_o(), 1);
      CHECK(outputs[i].is(exact.o));
      CHECK(gradients[i].is(exact.dk));
    }
    CHECK(attention.timeline(Pass::backward).spans.size() == attention.program(Pass::backward).steps.size());
  });
}

TEST_CASE("a pass begins behind another device's without the host", "[simt]") {
  gpu = std::make_unique<EmulatedDriver>(device_seed);
  const Problem problem = small_problem();
  const Inputs inputs(problem, 1);
  const auto stream = new_stream();
  run_ranks(1, [&](Rank, Transport& transport) {
    const auto first_device = device_on(stream.get()), second_device = device_on(nullptr);
    Attention first(problem, ring(), *first_device, transport), second(problem, ring(), *second_device, transport);
    const Layer layer(inputs);
    Barrier barrier(*stream);
    const Event forward = first.forward(layer.bindings, {});
    const Event backward = second.backward(layer.bindings, forward);
    CHECK_FALSE(backward.done());
    CHECK(barrier.host_waits() == 0);
    barrier.open();
    backward.wait();
    const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
    const Copied dq(layer.bindings.dq, *stream);
    stream->finish();
    CHECK(dq.is(exact.dq));
  });
}

TEST_CASE("a caller's stream waits for the passes of several ranks", "[simt]") {
  gpu = std::make_unique<EmulatedDriver>(device_seed);
  Problem problem = small_problem();
  constexpr int ranks = 2;
  std::atomic<int> right{0};
  problem.seq_q = problem.seq_kv = ranks * tokens;
  problem.mask = full_mask();
  const Inputs part(small_problem(), 1);  // what every rank has: all attend to each key once for each rank
  Problem alike = small_problem();
  alike.mask = full_mask();
  const ExactResult exact = exact_attention(alike, part.q(), part.k(), part.v(), part.d_o(), 1);
  run_ranks(ranks, [&](Rank, Transport& transport) {
    test::OneMemory host_only(transport);
    const auto stream = new_stream();
    const auto device = device_on(stream.get());
    Attention attention(problem, ring(), *device, host_only);
    const Layer layer(part);
    for (int call = 0; call < 2; ++call) attention.forward(layer.bindings, {});
    const Copied o(layer.bindings.o, *stream);
    attention.backward(layer.bindings, {});
    const Copied dq(layer.bindings.dq, *stream);
    stream->finish();
    right += o.is(exact.o) && dq.is(exact.dq) ? 1 : 0;
    attention.wait();
  });
  CHECK(right == ranks);
}

TEST_CASE("tensors of the host are queued too", "[simt]") {
  gpu = std::make_unique<EmulatedDriver>(device_seed);
  const Problem problem = small_problem();
  const Inputs inputs(problem, 1);
  const ExactResult exact = exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
  run_ranks(1, [&](Rank, Transport& transport) {
    const auto device = device_on(nullptr);
    Attention attention(problem, ring(), *device, transport);
    const Layer layer(inputs);
    std::vector<float> o(tokens * dim), lse(tokens);
    Bindings on_host = layer.bindings;
    on_host.o = dense_view(o.data(), 1, tokens, 1, dim);
    on_host.lse = statistics_view(lse.data(), 1, 1, tokens);
    const Event event = attention.forward(on_host, {});
    attention.forward(layer.bindings, {});
    event.wait();
    for (std::size_t i = 0; i < o.size(); ++i) CHECK(o[i] == Approx(exact.o[i]).margin(1e-5));
    attention.wait();
    for (std::size_t i = 0; i < o.size(); ++i) {
      CHECK(reinterpret_cast<const float*>(layer.bindings.o.data)[i] == Approx(exact.o[i]).margin(1e-5));
    }
  });
}

TEST_CASE("a queued pass that fails says where, to its event and to the next call", "[simt]") {
  const Problem problem = small_problem();
  const Inputs inputs(problem, 1);
  for (const bool faulty : {false, true}) {
    gpu = std::make_unique<EmulatedDriver>(device_seed);
    if (!faulty) gpu->fail_when("start attention", 2);
    const auto stream = new_stream();
    run_ranks(1, [&](Rank, Transport& transport) {
      const auto device = device_on(stream.get());
      Attention attention(problem, ring(), *device, transport);
      const Layer layer(inputs);
      const Event good = attention.forward(layer.bindings, {});
      if (faulty) {
        good.wait();
        static_cast<Queue*>(stream->handle())->submit([] {
          throw Error(ErrorKind::environment, "an illegal address");
        });
      }
      const Event bad = attention.forward(layer.bindings, {});
      const std::string message = failure_of(bad);
      CAPTURE(message, faulty);
      CHECK(message.rfind("rank 0, step ", 0) == 0);
      CHECK_THAT(message, contains_text(faulty ? "an illegal address" : "could not start attention"));
      CHECK(bad.done());
      CHECK(failure_of(bad) == message);
      CHECK_THROWS_WITH(attention.check(), message);
      CHECK_THROWS_WITH(attention.forward(layer.bindings, {}), message);
      CHECK_THROWS_WITH(attention.backward(layer.bindings), message);
    });
  }
}
