#include "backends/kokkos/spaces/device.hpp"

#include <algorithm>
#include <limits>
#include <mutex>

#include <fmt/core.h>

#include "backends/batches.hpp"
#include "backends/caller_memory.hpp"
#include "backends/kokkos/spaces/launches.hpp"
#include "backends/kokkos/spaces/streams.hpp"
#include "backends/staging.hpp"
#include "backends/streams/event.hpp"
#include "backends/streams/mirror.hpp"
#include "backends/streams/staged_transport.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/index.hpp"
#include "kernels/portable/spaces.hpp"

namespace distattn::backends {
namespace {

using kernels::portable::SpaceDevice;

/// Staging on a stream: one launch an operation.
class SpaceKernels final : public StagingKernels {
 public:
  explicit SpaceKernels(SpaceStream& stream) : stream_(stream) {}

  void rearrange(std::span<const kernels::RearrangeArgs> operations) override { start_all(operations); }
  void delta(std::span<const kernels::DeltaArgs> operations) override { start_all(operations); }
  void accumulate(std::span<const kernels::AccumulateArgs> operations) override { start_all(operations); }
  /// Portable kernels leave nothing out of dq, and tell others to leave nothing out.
  void share(std::span<const kernels::ShareArgs> operations) override {
    for (const auto& args : operations) {
      clear(args.into, index(args.batch * args.kv_count * args.head_dim) * sizeof *args.into);
    }
  }
  void settle(std::span<const kernels::SettleArgs>) override {}
  void merge_sinks(std::span<const kernels::SinkArgs> operations) override { start_all(operations); }
  void differentiate_sinks(std::span<const kernels::SinkGradientArgs> operations) override {
    for (const auto& args : operations) start_sums(args);
  }
  void fill(const kernels::FillArgs& args) override { start_all(std::span(&args, 1)); }
  void clear(void* into, std::size_t bytes) override { stream_.clear(into, bytes); }

 private:
  template <class Args>
  void start_all(std::span<const Args> operations) {
    for (const Args& args : operations) {
      stream_.append([args](kernels::portable::SpaceQueue& queue) { queue.start(args); });
    }
  }

  void start_sums(const kernels::SinkGradientArgs& args) {
    using kernels::portable::SinkSums;
    SinkSums sums{args.accumulator, args.heads, args.logits, args.gradients};
    std::size_t at = 0;
    do {
      sums.count = static_cast<int>(std::min(args.rows.size() - at, std::size_t{SinkSums::most}));
      std::copy_n(args.rows.begin() + static_cast<std::ptrdiff_t>(at), sums.count, sums.pieces);
      start_all(std::span<const SinkSums>(&sums, 1));
      sums.add = true;
      at += index(sums.count);
    } while (at < args.rows.size());
  }

  SpaceStream& stream_;
};

/// A device's memory and stream, on which its programs compute in turn, and what ends them.
struct Common {
  Common(SpaceDevice& space, int threads) : streams(space, threads), stream(streams.make_space_stream()) {}

  void end(const Error& error) noexcept {
    ending->end(error);
    streams.stop();
  }

  SpaceStreams streams;
  std::unique_ptr<SpaceStream> stream;
  std::shared_ptr<Ending> ending = std::make_shared<Ending>();
};

class SpaceProgram final : public DeviceProgram {
 public:
  /// `memory` is asked for the buffers and for what packing tensors needs beside them.
  SpaceProgram(const Outline& outline, const RankProgram& program, Rank rank, const Allocator& memory,
               SpaceDevice& space, Common& common)
      : DeviceProgram(outline, program, rank, common.streams.space(), memory(slots_bytes(program))),
        common_(common),
        max_logits_(outline, memory),
        dropout_{.probability = outline.sharding.problem.scores.dropout, .heads = outline.sharding.problem.heads},
        device_dropout_(dropout_.probability > 0 ? memory(sizeof(kernels::Dropout)) : nullptr),
        launches_(Batches(*this, Placement(*this), max_logits_), program.steps.size(), space, common.streams,
                  *common.stream, reinterpret_cast<const kernels::Dropout*>(device_dropout_.get())),
        staging_(*this, {std::numeric_limits<std::int64_t>::max(), 1, memory}),
        mirror_(common.streams),
        copy_stream_(common.streams.make_space_stream()) {}

  /// After a failure steps may still run in this memory.
  ~SpaceProgram() override { common_.stream->finish(); }

  void copy(std::byte* into, const std::byte* from, std::size_t bytes) override {
    const std::scoped_lock lock(copy_mutex_);
    copy_stream_->copy(into, from, bytes);
    wait_on_host(*copy_stream_->mark(), Ending());  // it is short: not given up
  }

  Event load(const Bindings& bindings) override {
    const std::string place = fmt::format("rank {}, inputs", rank());
    return or_finish(place, [&] {
      SpaceKernels kernels(*common_.stream);
      staging_.load(mirror_.inputs(bindings, outline().pass, *common_.stream), kernels);
      max_logits_.begin(kernels);
      if (device_dropout_ != nullptr) draw(bindings);
      begin_ = std::make_shared<Origin>(Origin{common_.stream->mark(), {}});
      return Event(std::make_shared<TensorEvent>(*common_.stream, common_.ending, begin_, place));
    });
  }

  Event submit(const Step& step, std::span<const Event> after) override {
    try {
      common_.ending->look();
      wait_for_all(after, *common_.stream);
      launches_.start(index_of(step), *common_.stream);
      return Event(
          std::make_shared<StreamEvent>(common_.stream->mark(), common_.ending, begin_, place_of(rank(), step)));
    } catch (...) {
      return Event::failed(std::make_exception_ptr(error_at(rank(), step, std::current_exception())));
    }
  }

  Event store(const Bindings& bindings, std::span<const Event> steps) override {
    const Pass pass = outline().pass;
    wait_for_all(steps, *common_.stream);
    const std::string place = fmt::format("rank {}, results", rank());
    return or_finish(place, [&] {
      SpaceKernels kernels(*common_.stream);
      const Bindings results = mirror_.results(bindings, pass, *common_.stream);
      staging_.store(results, kernels);
      max_logits_.store(results.max_logit, kernels);
      mirror_.fetch(bindings, pass, *common_.stream);
      return Event(std::make_shared<TensorEvent>(*common_.stream, common_.ending, begin_, place, begin_));
    });
  }

 private:
  /// What `start` appended has ended when this throws, and touches no caller's memory any more.
  template <class Start>
  Event or_finish(const std::string& place, Start start) {
    try {
      common_.ending->look();
      return start();
    } catch (...) {
      common_.stream->finish();
      rethrow_at(place);
    }
  }

  /// Tells kernels which weights this run drops. Passes that are queued behind it drop others.
  void draw(const Bindings& bindings) {
    kernels::Dropout drawn = dropout_;
    drawn.seed = bindings.dropout_seed;
    drawn.offset = bindings.dropout_offset;
    common_.stream->append([drawn, into = device_dropout_.get()](kernels::portable::SpaceQueue& queue) {
      queue.copy(into, &drawn, sizeof drawn, kernels::portable::Way::in);
      queue.fence();  // until then it reads this
    });
  }

  Common& common_;
  MaxLogits max_logits_;
  const kernels::Dropout dropout_;             // of the problem
  std::shared_ptr<std::byte> device_dropout_;  // the same where kernels see it; null: no weight is dropped
  SpaceLaunches launches_;
  Staging staging_;
  Mirror mirror_;
  std::mutex copy_mutex_;  // several lanes copy
  std::unique_ptr<SpaceStream> copy_stream_;
  std::shared_ptr<Origin> begin_;  // of the pass; its time on the host is known when the pass has ended
};

class OnSpace final : public Device {
 public:
  OnSpace(SpaceDevice& space, int threads, Allocator allocator, std::shared_ptr<const void> kept)
      : kept_(std::move(kept)),
        space_(space),
        name_(space.name()),
        common_(space, threads),
        allocator_(std::move(allocator)) {}

  std::string_view name() const override { return name_; }
  MemorySpace space() const override { return space_.space(); }
  WorkQueue queue() const override { return WorkQueue::own; }
  bool follow(const Event& event) override { return backends::follow(event, *common_.stream); }
  int query_block() const override { return 32; }
  Features features(Pass) const override { return kernels::portable::portable_features; }

  std::unique_ptr<DeviceProgram> allocate(const Outline& outline, const RankProgram& program, Rank rank) override {
    const Allocator memory = [&](std::size_t bytes) {
      return allocator_ ? common_.streams.know(from_caller(allocator_, bytes, rank), bytes)
                        : allocate_memory(bytes, program, rank);
    };
    auto made = std::make_unique<SpaceProgram>(outline, program, rank, memory, space_, common_);
    TensorEvent(*common_.stream, common_.ending, nullptr, fmt::format("rank {}, lists of tiles", rank)).wait();
    return made;
  }

  std::shared_ptr<std::byte> allocate_tensor(std::size_t bytes) override {
    return common_.streams.allocate(std::max(bytes, std::size_t{1}), space());
  }
  void copy(std::byte* into, const std::byte* from, std::size_t bytes) override {
    if (bytes == 0) return;
    common_.stream->copy(into, from, bytes);
    TensorEvent(*common_.stream, common_.ending, nullptr, "copying tensors").wait();
  }

  std::unique_ptr<Transport> staged(Transport& over) override {
    return over.reaches(MemorySpace::host) ? std::make_unique<StagedTransport>(common_.streams, over) : nullptr;
  }

  void abort(const Error& error) noexcept override { common_.end(error); }

 private:
  std::shared_ptr<std::byte> allocate_memory(std::size_t bytes, const RankProgram& program, Rank rank) {
    try {
      return common_.streams.allocate(std::max(bytes, std::size_t{1}), space());
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("rank {} cannot have the {} bytes that plan predicts for its buffers: {}; "
                                            "use more ranks or a schedule with fewer remote values",
                                            rank, slots_bytes(program), error.what()));
    }
  }

  const std::shared_ptr<const void> kept_;
  SpaceDevice& space_;
  const std::string name_;
  Common common_;
  const Allocator allocator_;
};

}  // namespace

std::unique_ptr<Device> make_space_device(SpaceDevice& space, const DeviceOptions& options,
                                          std::shared_ptr<const void> kept) {
  if (options.gpu != GpuOptions{}) {
    refuse(fmt::format("{} for {} (backend cuda alone knows that): leave it out, or choose another backend",
                       describe({.gpu = options.gpu}), space.name()));
  }
  const int threads =
      options.threads > 0 ? options.threads : std::max(1, usable_cores() / std::max(1, options.local_ranks));
  space.begin(options.local_rank, threads);
  return std::make_unique<OnSpace>(space, threads, options.allocator, std::move(kept));
}

}  // namespace distattn::backends
