#pragma once
/// A problem on one rank of a device: programs of several steps, and tensors that show what was written.

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "distattn/lower.hpp"
#include "tests/conformance/device_world.hpp"
#include "tests/support/sharded.hpp"

namespace distattn::test {

constexpr float untouched = 7777.f;

inline Problem problem_of(const DeviceKind& kind, std::int64_t tokens = 29) {
  Problem problem;
  problem.seq_q = problem.seq_kv = tokens;
  problem.batch = 2;
  problem.heads = 4;
  problem.kv_heads = 2;
  problem.head_dim = problem.value_dim = 16;
  problem.dtype = kind.dtype;
  problem.mask = causal_mask();
  return problem;
}

/// A step for each of three segments of keys, whose results are merged: on one rank, so that nothing is exchanged.
inline Lowering by_segments_of_keys(const Problem& problem, Pass pass) {
  constexpr int segments = 3;
  const auto tiles = std::make_shared<const Tiles>(shard(problem, 1, {LayoutKind::block, segments}));
  const Table table{segments, [tiles](int step, Rank, const Table::Sink& sink) {
                      const auto key = static_cast<SegmentId>(step);
                      for (const SegmentId query : tiles->queries_of(0)) {
                        if (tiles->live(query, key)) sink({0, query, key});
                      }
                    }};
  return {"by segments of keys", tiles, table, pass, Mode::overlapped};
}

/// Values in fp32, with room between them for what is somebody else's.
class Tensor {
 public:
  /// `gap` elements lie behind each row; backwards: the last token is the first in memory.
  Tensor(std::int64_t batch, std::int64_t tokens, int heads, int dim, std::int64_t gap = 0, bool backwards = false)
      : values_(static_cast<std::size_t>(batch * tokens * heads * (dim + gap)), untouched) {
    view_ = dense_view(reinterpret_cast<std::byte*>(values_.data()), DType::fp32, batch, tokens, heads, dim + gap);
    view_.shape[3] = dim;
    if (!backwards) return;
    view_.data = view_.row(0, tokens - 1, 0);
    view_.strides[1] = -view_.strides[1];
  }

  const TensorView& view() const { return view_; }
  /// The elements alone, as [batch, sequence, heads, dim].
  std::vector<float> elements() const {
    std::vector<float> all;
    for_each_row([&](const float* row) { all.insert(all.end(), row, row + view_.head_dim()); });
    return all;
  }
  bool is_untouched() const { return std::all_of(values_.begin(), values_.end(), is_as_before); }
  bool keeps_gaps() const {
    const auto elements =
        static_cast<std::ptrdiff_t>(values_.size()) - std::count_if(values_.begin(), values_.end(), is_as_before);
    return elements == view_.batch() * view_.sequence() * view_.heads() * view_.head_dim();
  }

 private:
  static bool is_as_before(float value) { return value == untouched; }
  template <class Visit>
  void for_each_row(Visit visit) const {
    for (std::int64_t b = 0; b < view_.batch(); ++b) {
      for (std::int64_t s = 0; s < view_.sequence(); ++s) {
        for (std::int64_t h = 0; h < view_.heads(); ++h) visit(reinterpret_cast<const float*>(view_.row(b, s, h)));
      }
    }
  }

  std::vector<float> values_;
  TensorView view_;
};

/// Tensors for both passes of a problem.
struct Tensors {
  explicit Tensors(const Inputs& inputs, std::int64_t gap = 0, bool backwards = false)
      : o(shaped(inputs.d_o(), gap, backwards)),
        dq(shaped(inputs.q(), gap, backwards)),
        dk(shaped(inputs.k(), gap, backwards)),
        dv(shaped(inputs.v(), gap, backwards)) {
    const Problem& problem = inputs.problem();
    lse.resize(static_cast<std::size_t>(problem.batch * problem.heads * problem.seq_q), untouched);
    low = lse;
    bindings.q = inputs.q(), bindings.k = inputs.k(), bindings.v = inputs.v(), bindings.d_o = inputs.d_o();
    bindings.o = o.view();
    bindings.lse = statistics_view(lse.data(), problem.batch, problem.heads, problem.seq_q);
    bindings.lse_low = statistics_view(low.data(), problem.batch, problem.heads, problem.seq_q);
    bindings.dq = dq.view(), bindings.dk = dk.view(), bindings.dv = dv.view();
  }

  static Tensor shaped(const ConstTensorView& like, std::int64_t gap, bool backwards) {
    return {like.batch(), like.sequence(), static_cast<int>(like.heads()), static_cast<int>(like.head_dim()),
            gap,          backwards};
  }
  std::array<const Tensor*, 4> results() const { return {&o, &dq, &dk, &dv}; }
  bool is_untouched() const {
    const auto all = results();
    return std::all_of(all.begin(), all.end(), [](const Tensor* each) { return each->is_untouched(); }) &&
           std::all_of(lse.begin(), lse.end(), [](float value) { return value == untouched; });
  }

  Tensor o, dq, dk, dv;
  std::vector<float> lse, low;
  Bindings bindings;
};

/// What both passes give.
struct Results {
  explicit Results(const Tensors& tensors)
      : o(tensors.o.elements()),
        lse(tensors.lse),
        dq(tensors.dq.elements()),
        dk(tensors.dk.elements()),
        dv(tensors.dv.elements()) {}
  friend bool operator==(const Results&, const Results&) = default;
  bool same_forward(const Results& other) const { return o == other.o && lse == other.lse; }

  std::vector<float> o, lse, dq, dk, dv;
};

inline double error_of(const Results& got, const Inputs& inputs) {
  const auto exact = exact_attention(inputs.problem(), inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
  const auto widened = [](const std::vector<float>& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  return largest_error({.o = widened(got.o),
                        .lse = widened(got.lse),
                        .dq = widened(got.dq),
                        .dk = widened(got.dk),
                        .dv = widened(got.dv),
                        .max_logit = {},
                        .dsink_logits = {}},
                       exact);
}

/// A pass of a problem on a device, made ready.
class Made {
 public:
  Made(Device& device, const Problem& problem, Pass pass)
      : lowering_(by_segments_of_keys(problem, pass)),
        program_(lowering_.program(0)),
        on_device_(device.allocate(lowering_.outline(), program_, 0)) {}

  DeviceProgram& on_device() { return *on_device_; }
  std::size_t steps() const { return program_.steps.size(); }
  const Step& step(std::size_t number) const { return program_.steps[number]; }

  Event load(const Bindings& bindings) { return loaded_ = on_device_->load(bindings); }
  Event submit(std::size_t number, std::vector<Event> after = {}) {
    const Step& step = program_.steps[number];
    if (number == 0) after.push_back(loaded_);
    for (const StepId id : step.after) after.push_back(events_[index(id)]);
    events_.resize(std::max(events_.size(), number + 1));
    return events_[number] = on_device_->submit(step, after);
  }
  Event store(const Bindings& bindings) { return on_device_->store(bindings, events_); }
  void run(const Bindings& bindings) {
    load(bindings);
    for (std::size_t number = 0; number < steps(); ++number) submit(number);
    finish(bindings);
  }
  void finish(const Bindings& bindings) {
    store(bindings).wait();
    for (const Event& event : events_) event.wait();
    loaded_.wait();
  }

 private:
  Lowering lowering_;
  RankProgram program_;
  std::unique_ptr<DeviceProgram> on_device_;
  Event loaded_;
  std::vector<Event> events_;
};

/// Both passes of a problem on a device.
struct Both {
  Both(Device& device, const Problem& problem)
      : forward(device, problem, Pass::forward), backward(device, problem, Pass::backward) {}
  Results run(Tensors& tensors) {
    forward.run(tensors.bindings);
    backward.run(tensors.bindings);
    return Results(tensors);
  }
  Results run(const Inputs& inputs) {
    Tensors tensors(inputs);
    return run(tensors);
  }
  Made forward, backward;
};

inline Results compute(Device& device, const Inputs& inputs) { return Both(device, inputs.problem()).run(inputs); }

class Gate final : public Event::State {
 public:
  bool done() const override { return open_; }
  void wait() const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_.load(); });
  }
  Event::Clock::time_point ended_at() const override { return {}; }
  void open() {
    const std::scoped_lock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::atomic<bool> open_{false};
};

}  // namespace distattn::test
