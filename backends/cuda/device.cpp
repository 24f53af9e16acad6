#include "backends/cuda/device.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>

#include <fmt/core.h>

#include "backends/batches.hpp"
#include "backends/caller_memory.hpp"
#include "backends/cuda/event.hpp"
#include "backends/cuda/launches.hpp"
#include "backends/cuda/mirror.hpp"
#include "backends/cuda/staged_transport.hpp"
#include "backends/staging.hpp"
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
  void clear(void* into, std::size_t bytes) override { stream_.clear(into, bytes); }

 private:
  const Driver& driver_;
  Stream& stream_;
};

/// A program's memory with everything that its steps need. Batches are resolved before the lists are made from them.
class CudaBuffers final : public BufferTable {
 public:
  /// `memory` is asked for the buffers and for what packing tensors needs beside them.
  CudaBuffers(const Outline& outline, const RankProgram& program, Rank rank, const Allocator& memory, Driver& driver,
              Stream& stream, const int* stop, AttendProvider* provider, const KernelChoice& choice, StepGraphs graphs)
      : BufferTable(outline, program, rank, MemorySpace::cuda, memory(slots_bytes(program))),
        launches(Batches(*this, Placement(*this)), program.steps.size(), driver, stream, stop, provider, choice,
                 graphs),
        staging(*this, {std::numeric_limits<std::int64_t>::max(), 1, memory}),
        mirror(driver),
        driver_(driver),
        stream_(stream),
        copy_stream_(driver.make_stream(StreamPriority::high)) {}

  /// After a failure steps may still run in this memory.
  ~CudaBuffers() override { stream_.finish(); }

  void make_current() override { driver_.make_current(); }
  void copy(std::byte* into, const std::byte* from, std::size_t bytes) override;

  Launches launches;
  mutable Staging staging;  // its lists of arguments are scratch
  mutable Mirror mirror;

 private:
  Driver& driver_;
  Stream& stream_;
  std::mutex copy_mutex_;  // several lanes copy
  std::unique_ptr<Stream> copy_stream_;
};

void CudaBuffers::copy(std::byte* into, const std::byte* from, std::size_t bytes) {
  const std::scoped_lock lock(copy_mutex_);
  copy_stream_->copy(into, from, bytes);
  wait_on_host(*copy_stream_->mark(), Ending());  // it is short: not given up
}

/// Of work with the caller's tensors on `stream`.
class TensorEvent final : public GpuEvent {
 public:
  /// Where its end tells when the pass began on the host's clock, `begin` learns it.
  TensorEvent(Stream& stream, std::shared_ptr<const Watch> watch, std::shared_ptr<const Origin> origin,
              std::string place, std::shared_ptr<Origin> begin = nullptr)
      : GpuEvent(stream.mark(), std::move(watch), std::move(origin), std::move(place)),
        stream_(stream),
        begin_(std::move(begin)) {}

  /// Nothing before it touches them any more when this returns, also when it throws.
  void wait() const override {
    try {
      GpuEvent::wait();
    } catch (...) {
      stream_.finish();
      throw;
    }
    if (begin_ != nullptr) begin_->at = Event::Clock::now() - since(*begin_);
  }

 private:
  Stream& stream_;
  const std::shared_ptr<Origin> begin_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(Driver& driver, const DeviceOptions& options, std::unique_ptr<AttendProvider> provider)
      : driver_(driver),
        provider_(std::move(provider)),
        choice_{driver.capability(), options.gradient_order, options.variant},
        step_graphs_(options.step_graphs),
        allocator_(options.allocator),
        stream_(options.stream != nullptr ? driver.adopt_stream(options.stream)
                                          : driver.make_stream(StreamPriority::normal)),
        abort_stream_(driver.make_stream(StreamPriority::high)),
        stop_(driver.allocate(sizeof(int), MemorySpace::cuda)),
        raised_(driver.allocate(sizeof(int), MemorySpace::host)) {
    const int one = 1;
    std::memcpy(raised_.get(), &one, sizeof one);
    abort_stream_->clear(stop_.get(), sizeof(int));
    wait_on_host(*abort_stream_->mark(), *ending_);
  }

  /// After an abort its flag may still be on the way.
  ~CudaDevice() override { abort_stream_->finish(); }

  std::string_view name() const override { return "cuda"; }
  MemorySpace space() const override { return MemorySpace::cuda; }

  std::string why_not(const Problem& problem, Pass pass) const override {
    if (provider_ != nullptr) {
      if (pass == Pass::backward && choice_.gradient_order == GradientOrder::fixed) {
        return "this provider adds to gradients in any order (their last bits may differ from run to run) "
               "take provider own for the same bits";
      }
      return provider_->why_not(problem, pass);
    }
    return kernels::cuda::why_no_attend_kernel(problem.dtype, problem.head_dim, problem.value_dim, choice_.capability);
  }

  std::vector<KernelVariant> variants(const Problem& problem, Pass pass) const override {
    if (provider_ != nullptr || !why_not(problem, pass).empty()) return {};
    const kernels::Heads heads{problem.heads, problem.kv_heads, 0, 0, problem.heads_per_kv()};
    const TileWork work{
        {problem.dtype, 1, heads, problem.head_dim, problem.value_dim},
        problem.seq_q,
        coverage_of(bands_of(problem.mask), {problem.first_query(), problem.seq_q}, {0, problem.seq_kv})};
    std::vector<KernelVariant> variants;
    for (const auto& request : tile_passes(pass, work, choice_)) {
      const auto* const used = find_attend_kernel(request, choice_.capability);
      for (const auto* kernel : attend_family(request, choice_.capability)) {
        variants.push_back({kernels::cuda::name_of(kernel->pass), kernel->name, kernel == used});
      }
    }
    return variants;
  }

  std::unique_ptr<BufferTable> allocate(const Outline& outline, const RankProgram& program, Rank rank) override {
    const Allocator memory = [&](std::size_t bytes) {
      return allocator_ ? from_caller(allocator_, bytes, rank) : allocate_memory(bytes, program, rank);
    };
    auto buffers = std::make_unique<CudaBuffers>(outline, program, rank, memory, driver_, *stream_,
                                                 reinterpret_cast<const int*>(stop_.get()), provider_.get(), choice_,
                                                 step_graphs_);
    TensorEvent(*stream_, ending_, nullptr, fmt::format("rank {}, lists of tiles", rank)).wait();
    return buffers;
  }

  std::shared_ptr<std::byte> allocate_tensor(std::size_t bytes) override {
    return driver_.allocate(std::max(bytes, std::size_t{1}), MemorySpace::cuda);
  }
  void copy(std::byte* into, const std::byte* from, std::size_t bytes) override {
    if (bytes == 0) return;
    stream_->copy(into, from, bytes);
    TensorEvent(*stream_, ending_, nullptr, "copying tensors").wait();
  }

  Event load(const Bindings& bindings, BufferTable& table) override {
    auto& buffers = dynamic_cast<CudaBuffers&>(table);
    const std::string place = fmt::format("rank {}, inputs", table.rank());
    return or_finish(place, [&] {
      StreamKernels kernels(driver_, *stream_);
      buffers.staging.load(buffers.mirror.inputs(bindings, table.outline().pass, *stream_), kernels);
      begin_ = std::make_shared<Origin>(Origin{stream_->mark(), {}});
      return Event(std::make_shared<TensorEvent>(*stream_, ending_, begin_, place));
    });
  }

  Event store(const BufferTable& table, const Bindings& bindings, std::span<const Event> steps) override {
    const auto& buffers = dynamic_cast<const CudaBuffers&>(table);
    const Pass pass = table.outline().pass;
    // Copying to memory that is not pinned waits for the stream, and would do so without looking at the other ranks.
    if (Mirror::fetches(bindings, pass)) {
      for (const Event& step : steps) step.wait();
    }
    wait_for_all(steps, *stream_);
    const std::string place = fmt::format("rank {}, results", table.rank());
    return or_finish(place, [&] {
      StreamKernels kernels(driver_, *stream_);
      buffers.staging.store(buffers.mirror.results(bindings, pass, *stream_), kernels);
      buffers.mirror.fetch(bindings, pass, *stream_);
      return Event(std::make_shared<TensorEvent>(*stream_, ending_, begin_, place, begin_));
    });
  }

  Event submit(const Step& step, BufferTable& table, std::span<const Event> after) override {
    try {
      ending_->look();
      wait_for_all(after, *stream_);
      auto& buffers = dynamic_cast<CudaBuffers&>(table);
      buffers.launches.start(table.index_of(step), *stream_);
      return Event(std::make_shared<GpuEvent>(stream_->mark(), ending_, begin_, place_of(table.rank(), step)));
    } catch (...) {
      return Event::failed(std::make_exception_ptr(error_at(table.rank(), step, std::current_exception())));
    }
  }

  std::unique_ptr<Transport> staged(Transport& over) override {
    return over.reaches(MemorySpace::host) ? std::make_unique<StagedTransport>(driver_, over) : nullptr;
  }

  void abort(const Error& error) noexcept override {
    ending_->end(error);
    try {
      abort_stream_->copy(stop_.get(), raised_.get(), sizeof(int));
    } catch (const Error&) {
      // The GPU refuses work: nothing runs there that could be stopped.
    }
  }

 private:
  /// What `start` submitted has ended when this throws, and touches no caller's memory any more.
  template <class Start>
  Event or_finish(const std::string& place, Start start) {
    try {
      return start();
    } catch (...) {
      stream_->finish();
      rethrow_at(place);
    }
  }

  std::shared_ptr<std::byte> allocate_memory(std::size_t bytes, const RankProgram& program, Rank rank) {
    try {
      return driver_.allocate(std::max(bytes, std::size_t{1}), MemorySpace::cuda);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("rank {} cannot have the {} bytes that plan predicts for its buffers: {}; "
                                            "use more ranks or a schedule with fewer remote values",
                                            rank, slots_bytes(program), error.what()));
    }
  }

  Driver& driver_;
  const std::unique_ptr<AttendProvider> provider_;
  const KernelChoice choice_;
  const StepGraphs step_graphs_;
  const Allocator allocator_;
  std::unique_ptr<Stream> stream_, abort_stream_;
  std::shared_ptr<std::byte> stop_, raised_;
  std::shared_ptr<Ending> ending_ = std::make_shared<Ending>();
  std::shared_ptr<Origin> begin_;  // of the pass; its time on the host is known when the pass has ended
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(Driver& driver, const DeviceOptions& options,
                                         std::unique_ptr<AttendProvider> provider) {
  const auto kernels = kernels::cuda::attend_kernels();
  if (!options.variant.empty() &&
      std::none_of(kernels.begin(), kernels.end(), [&](const auto& k) { return k.name == options.variant; })) {
    refuse("no CUDA kernel is called " + options.variant + " (Device::variants names those of a problem)");
  }
  if (options.step_graphs != StepGraphs::never && provider != nullptr) {
    refuse("graphs of a provider's kernels (not every provider's can be recorded) take provider own, or no graphs");
  }
  return std::make_unique<CudaDevice>(driver, options, std::move(provider));
}

}  // namespace distattn::backends::cuda
