#include "backends/cuda/device.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>

#include <fmt/core.h>

#include "backends/batches.hpp"
#include "backends/caller_memory.hpp"
#include "backends/cuda/launches.hpp"
#include "backends/staging.hpp"
#include "backends/streams/event.hpp"
#include "backends/streams/mirror.hpp"
#include "backends/streams/staged_transport.hpp"
#include "distattn/index.hpp"
#include "kernels/cuda/attend_kernels.hpp"
#include "kernels/cuda/elementwise.hpp"

namespace distattn::backends::cuda {
namespace {

/// Staging on a stream: one launch an operation.
class StreamKernels final : public StagingKernels {
 public:
  StreamKernels(const Driver& driver, Stream& stream) : driver_(driver), stream_(stream) {}

  void rearrange(std::span<const kernels::RearrangeArgs> operations) override {
    for (const auto& args : operations) {
      driver_.check(kernels::cuda::rearrange(args, stream_.handle()), "start packing tensors");
    }
  }
  void delta(std::span<const kernels::DeltaArgs> operations) override {
    for (const auto& args : operations) {
      driver_.check(kernels::cuda::delta(args, stream_.handle()), "start computing delta");
    }
  }
  void accumulate(std::span<const kernels::AccumulateArgs> operations) override {
    for (const auto& args : operations) {
      driver_.check(kernels::cuda::accumulate(args, stream_.handle()), "start adding gradients");
    }
  }
  /// Kernels of GPUs leave nothing out of dq, and tell others to leave nothing out.
  void share(std::span<const kernels::ShareArgs> operations) override {
    for (const auto& args : operations) {
      clear(args.into, index(args.batch * args.kv_count * args.head_dim) * sizeof *args.into);
    }
  }
  void settle(std::span<const kernels::SettleArgs>) override {}
  void merge_sinks(std::span<const kernels::SinkArgs> operations) override {
    for (const auto& args : operations) {
      driver_.check(kernels::cuda::merge_sinks(args, stream_.handle()), "start merging sink logits");
    }
  }
  void differentiate_sinks(std::span<const kernels::SinkGradientArgs> operations) override {
    for (const auto& args : operations) {
      driver_.check(kernels::cuda::differentiate_sinks(args, stream_.handle()), "start differentiating sink logits");
    }
  }
  void fill(const kernels::FillArgs& args) override { start_filling(args, driver_, stream_); }
  void clear(void* into, std::size_t bytes) override { stream_.clear(into, bytes); }

 private:
  const Driver& driver_;
  Stream& stream_;
};

/// A device's stream and kernels, on which its programs compute in turn, and what ends them.
struct Common {
  Common(Driver& on, const DeviceOptions& options, std::unique_ptr<AttendProvider> tiles)
      : driver(on),
        provider(std::move(tiles)),
        choice{on.capability(), options.gradient_order, options.gpu.variant},
        step_graphs(options.gpu.step_graphs),
        stream(options.gpu.stream != nullptr ? on.adopt_stream(options.gpu.stream)
                                             : on.make_stream(StreamPriority::normal)),
        abort_stream(on.make_stream(StreamPriority::high)),
        stop(on.allocate(sizeof(int), MemorySpace::cuda)),
        raised(on.allocate(sizeof(int), MemorySpace::host)) {
    const int one = 1;
    std::memcpy(raised.get(), &one, sizeof one);
    abort_stream->clear(stop.get(), sizeof(int));
    wait_on_host(*abort_stream->mark(), *ending);
  }
  /// After an abort its flag may still be on the way.
  ~Common() { abort_stream->finish(); }
  Common(const Common&) = delete;
  Common& operator=(const Common&) = delete;

  void end(const Error& error) noexcept {
    ending->end(error);
    try {
      abort_stream->copy(stop.get(), raised.get(), sizeof(int));
    } catch (const Error&) {
      // The GPU refuses work: nothing runs there that could be stopped.
    }
  }

  Driver& driver;
  const std::unique_ptr<AttendProvider> provider;
  const KernelChoice choice;
  const StepGraphs step_graphs;
  std::unique_ptr<Stream> stream, abort_stream;
  std::shared_ptr<std::byte> stop, raised;
  std::shared_ptr<Ending> ending = std::make_shared<Ending>();
  std::mutex turn;  // guards the provider, and keeps a step's kernels together
};

class CudaProgram final : public DeviceProgram {
 public:
  /// `memory` is asked for the buffers and for what packing tensors needs beside them. Batches are resolved before the
  /// lists are made from them.
  CudaProgram(const Outline& outline, const RankProgram& program, Rank rank, const Allocator& memory, Common& common)
      : DeviceProgram(outline, program, rank, MemorySpace::cuda, memory(slots_bytes(program))),
        common_(common),
        stream_(*common.stream),
        max_logits_(outline, memory),
        draw_(outline.sharding.problem.scores.dropout > 0 ? memory(sizeof(kernels::cuda::DropoutDraw)) : nullptr),
        launches_(Batches(*this, Placement(*this), max_logits_), program.steps.size(), common.driver, stream_,
                  {reinterpret_cast<const int*>(common.stop.get()), draw()}, common.provider.get(), common.choice,
                  common.step_graphs),
        staging_(*this, {std::numeric_limits<std::int64_t>::max(), 1, memory}),
        mirror_(common.driver),
        copy_stream_(common.driver.make_stream(StreamPriority::high)) {}

  /// After a failure steps may still run in this memory.
  ~CudaProgram() override { stream_.finish(); }

  void make_current() override { common_.driver.make_current(); }
  void copy(std::byte* into, const std::byte* from, std::size_t bytes) override;

  Event load(const Bindings& bindings) override;
  Event submit(const Step& step, std::span<const Event> after) override;
  Event store(const Bindings& bindings, std::span<const Event> steps) override;

 private:
  /// What `start` submitted has ended when this throws, and touches no caller's memory any more.
  template <class Start>
  Event or_finish(const std::string& place, Start start) {
    try {
      common_.ending->look();
      return start();
    } catch (...) {
      stream_.finish();
      rethrow_at(place);
    }
  }

  kernels::cuda::DropoutDraw* draw() const { return reinterpret_cast<kernels::cuda::DropoutDraw*>(draw_.get()); }

  Common& common_;
  Stream& stream_;
  MaxLogits max_logits_;
  std::shared_ptr<std::byte> draw_;  // which weights the run drops; null: none
  Launches launches_;
  Staging staging_;
  Mirror mirror_;
  std::mutex copy_mutex_;  // several lanes copy
  std::unique_ptr<Stream> copy_stream_;
  std::shared_ptr<Origin> begin_;  // of the pass; its time on the host is known when the pass has ended
};

void CudaProgram::copy(std::byte* into, const std::byte* from, std::size_t bytes) {
  const std::scoped_lock lock(copy_mutex_);
  copy_stream_->copy(into, from, bytes);
  wait_on_host(*copy_stream_->mark(), Ending());  // it is short: not given up
}

Event CudaProgram::load(const Bindings& bindings) {
  const std::string place = fmt::format("rank {}, inputs", rank());
  return or_finish(place, [&] {
    StreamKernels kernels(common_.driver, stream_);
    staging_.load(mirror_.inputs(bindings, outline().pass, stream_), kernels);
    max_logits_.begin(kernels);
    if (draw() != nullptr) {
      const kernels::cuda::DropoutDraw drawn(bindings.dropout_seed, bindings.dropout_offset);
      common_.driver.check(kernels::cuda::write_draw(draw(), drawn, stream_.handle()), "start dropping weights");
    }
    begin_ = std::make_shared<Origin>(Origin{stream_.mark(), {}});
    return Event(std::make_shared<TensorEvent>(stream_, common_.ending, begin_, place));
  });
}

Event CudaProgram::store(const Bindings& bindings, std::span<const Event> steps) {
  const Pass pass = outline().pass;
  // Copying to memory that is not pinned waits for the stream, and would do so without looking at the other ranks.
  if (Mirror::fetches(bindings, pass)) {
    for (const Event& step : steps) step.wait();
  }
  wait_for_all(steps, stream_);
  const std::string place = fmt::format("rank {}, results", rank());
  return or_finish(place, [&] {
    StreamKernels kernels(common_.driver, stream_);
    const Bindings results = mirror_.results(bindings, pass, stream_);
    staging_.store(results, kernels);
    max_logits_.store(results.max_logit, kernels);
    mirror_.fetch(bindings, pass, stream_);
    return Event(std::make_shared<TensorEvent>(stream_, common_.ending, begin_, place, begin_));
  });
}

Event CudaProgram::submit(const Step& step, std::span<const Event> after) {
  try {
    common_.ending->look();
    wait_for_all(after, stream_);
    const std::scoped_lock turn(common_.turn);
    launches_.start(index_of(step), stream_);
    return Event(std::make_shared<StreamEvent>(stream_.mark(), common_.ending, begin_, place_of(rank(), step)));
  } catch (...) {
    return Event::failed(std::make_exception_ptr(error_at(rank(), step, std::current_exception())));
  }
}

class CudaDevice final : public Device {
 public:
  CudaDevice(Driver& driver, const DeviceOptions& options, std::unique_ptr<AttendProvider> provider)
      : common_(driver, options, std::move(provider)),
        allocator_(options.allocator),
        queue_(options.gpu.stream != nullptr ? WorkQueue::callers : WorkQueue::own) {}

  std::string_view name() const override { return "cuda"; }
  MemorySpace space() const override { return MemorySpace::cuda; }
  WorkQueue queue() const override { return queue_; }
  bool follow(const Event& event) override { return backends::follow(event, *common_.stream); }

  Features features(Pass pass) const override {
    const Features of_tiles = common_.provider != nullptr
                                  ? common_.provider->features(pass)
                                  : kernels::cuda::attend_features(pass, common_.choice.capability);
    return of_tiles.with({Feature::sink_logits});
  }

  std::vector<KernelVariant> variants(const Problem& problem, Pass pass) const override {
    if (common_.provider != nullptr || !why_not(problem, pass).empty()) return {};
    const TileWork work{
        shape_of(problem), problem.seq_q,
        coverage_of(bands_of(problem.mask), {problem.first_query(), problem.seq_q}, {0, problem.seq_kv})};
    std::vector<KernelVariant> variants;
    for (const auto& request : tile_passes(pass, work, common_.choice)) {
      const auto* const used = find_attend_kernel(request, common_.choice.capability);
      for (const auto* kernel : attend_family(request, common_.choice.capability)) {
        variants.push_back({kernels::cuda::name_of(kernel->pass), kernel->name, kernel == used});
      }
    }
    return variants;
  }

  std::unique_ptr<DeviceProgram> allocate(const Outline& outline, const RankProgram& program, Rank rank) override {
    const Allocator memory = [&](std::size_t bytes) {
      return allocator_ ? from_caller(allocator_, bytes, rank) : allocate_memory(bytes, program, rank);
    };
    const std::scoped_lock turn(common_.turn);
    auto made = std::make_unique<CudaProgram>(outline, program, rank, memory, common_);
    TensorEvent(*common_.stream, common_.ending, nullptr, fmt::format("rank {}, lists of tiles", rank)).wait();
    return made;
  }

  std::shared_ptr<std::byte> allocate_tensor(std::size_t bytes) override {
    return common_.driver.allocate(std::max(bytes, std::size_t{1}), MemorySpace::cuda);
  }
  void copy(std::byte* into, const std::byte* from, std::size_t bytes) override {
    if (bytes == 0) return;
    common_.stream->copy(into, from, bytes);
    TensorEvent(*common_.stream, common_.ending, nullptr, "copying tensors").wait();
  }

  std::unique_ptr<Transport> staged(Transport& over) override {
    return over.reaches(MemorySpace::host) ? std::make_unique<StagedTransport>(common_.driver, over) : nullptr;
  }

  void abort(const Error& error) noexcept override { common_.end(error); }

 private:
  std::string objection(const Problem& problem, Pass pass) const override {
    if (common_.provider == nullptr) {
      return kernels::cuda::why_no_attend_kernel(shape_of(problem), common_.choice.capability);
    }
    if (pass == Pass::backward && common_.choice.gradient_order == GradientOrder::fixed) {
      return "this provider adds to gradients in any order (their last bits may differ from run to run): "
             "take provider own for the same bits";
    }
    return common_.provider->why_not(shape_of(problem), pass);
  }

  std::shared_ptr<std::byte> allocate_memory(std::size_t bytes, const RankProgram& program, Rank rank) {
    try {
      return common_.driver.allocate(std::max(bytes, std::size_t{1}), MemorySpace::cuda);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("rank {} cannot have the {} bytes that plan predicts for its buffers: {}; "
                                            "use more ranks or a schedule with fewer remote values",
                                            rank, slots_bytes(program), error.what()));
    }
  }

  Common common_;
  const Allocator allocator_;
  const WorkQueue queue_;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(Driver& driver, const DeviceOptions& options,
                                         std::unique_ptr<AttendProvider> provider) {
  const auto kernels = kernels::cuda::attend_kernels();
  if (!options.gpu.variant.empty() &&
      std::none_of(kernels.begin(), kernels.end(), [&](const auto& k) { return k.name == options.gpu.variant; })) {
    refuse("no CUDA kernel is called " + options.gpu.variant + " (Device::variants names those of a problem)");
  }
  if (options.gpu.step_graphs != StepGraphs::never && provider != nullptr) {
    refuse("graphs of a provider's kernels (not every provider's can be recorded): take provider own, or no graphs");
  }
  return std::make_unique<CudaDevice>(driver, options, std::move(provider));
}

}  // namespace distattn::backends::cuda
