#include "backends/host/device.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>

#include <fmt/core.h>

#include "backends/batches.hpp"
#include "backends/caller_memory.hpp"
#include "backends/placement.hpp"
#include "backends/staging.hpp"
#include "distattn/host_resources.hpp"
#include "kernels/pages.hpp"

namespace distattn::backends {
namespace {

constexpr std::int64_t delta_rows = 512;  // of o that a thread packs at a time

/// Whole pages: what a transport registers is not shared with other memory.
std::shared_ptr<std::byte> allocate_memory(std::size_t bytes, Rank rank) {
  kernels::Pages pages = kernels::allocate_pages(bytes);
  if (pages == nullptr) {
    throw Error(ErrorKind::environment,
                fmt::format("rank {} cannot allocate {} bytes for its buffers (out of memory) use more ranks or a "
                            "schedule with fewer remote values",
                            rank, bytes));
  }
  return {pages.release(), kernels::FreePages()};
}

/// A program's memory with everything that its steps need.
class HostBuffers final : public BufferTable {
 public:
  HostBuffers(const Outline& outline, const RankProgram& program, Rank rank, const Allocator& memory, int threads)
      : BufferTable(outline, program, rank, MemorySpace::host, memory(slots_bytes(program))),
        placement(*this),
        batches(*this, placement),
        staging(*this, {delta_rows, threads, memory}, &placement) {}

  Placement placement;
  Batches batches;
  mutable Staging staging;  // its lists of arguments are scratch
};

class HostStagingKernels final : public StagingKernels {
 public:
  HostStagingKernels(const kernels::HostKernels& kernels, kernels::Team& team, const kernels::StopFlag& stop)
      : kernels_(kernels), team_(team), stop_(stop) {}

  void rearrange(std::span<const kernels::RearrangeArgs> list) override { kernels_.rearrange(list, team_, stop_); }
  void delta(std::span<const kernels::DeltaArgs> list) override { kernels_.delta(list, team_, stop_); }
  void accumulate(std::span<const kernels::AccumulateArgs> list) override { kernels_.accumulate(list, team_, stop_); }
  void clear(void* into, std::size_t bytes) override { std::memset(into, 0, bytes); }

 private:
  const kernels::HostKernels& kernels_;
  kernels::Team& team_;
  const kernels::StopFlag& stop_;
};

template <class T>
void fill(const FillArgs& args) {
  std::fill_n(static_cast<T*>(args.into), args.count, static_cast<T>(args.value));
}

void fill_all(std::span<const FillArgs> operations) {
  for (const FillArgs& args : operations) {
    switch (args.dtype) {
      case DType::fp64:
        fill<double>(args);
        break;
      case DType::fp32:
        fill<float>(args);
        break;
      case DType::bf16:
      case DType::fp16:
        DISTATTN_EXPECT(args.value == 0);
        fill<std::uint16_t>(args);
        break;
    }
  }
}

class HostDevice final : public Device {
 public:
  HostDevice(const kernels::HostKernels& kernels, int threads, Allocator allocator)
      : kernels_(kernels), team_(threads), allocator_(std::move(allocator)) {}

  std::string_view name() const override { return kernels_.name; }
  MemorySpace space() const override { return MemorySpace::host; }

  int query_block() const override { return kernels_.query_block(); }
  int few_queries() const override { return kernels_.few_queries(); }

  std::string why_not(const Problem& problem, Pass) const override {
    return kernels_.why_not({problem.dtype,
                             problem.batch,
                             {problem.heads, problem.kv_heads, 0, 0, problem.heads_per_kv()},
                             problem.head_dim,
                             problem.value_dim,
                             problem.softmax_scale()});
  }

  std::unique_ptr<BufferTable> allocate(const Outline& outline, const RankProgram& program, Rank rank) override {
    const Allocator memory = [this, rank](std::size_t bytes) {
      return allocator_ ? from_caller(allocator_, bytes, rank) : allocate_memory(bytes, rank);
    };
    return std::make_unique<HostBuffers>(outline, program, rank, memory, team_.size());
  }

  Event load(const Bindings& bindings, BufferTable& buffers) override {
    HostStagingKernels kernels(kernels_, team_, stop_);
    auto& own = dynamic_cast<HostBuffers&>(buffers);
    own.staging.load(bindings, kernels);
    own.batches.bind(own.placement);
    throw_if_aborted();
    return {};
  }
  Event store(const BufferTable& buffers, const Bindings& bindings, std::span<const Event> steps) override {
    for (const Event& step : steps) step.wait();
    HostStagingKernels kernels(kernels_, team_, stop_);
    dynamic_cast<const HostBuffers&>(buffers).staging.store(bindings, kernels);
    throw_if_aborted();
    return {};
  }

  Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) override {
    try {
      for (const Event& event : after) event.wait();
      for (const Batch& batch : dynamic_cast<HostBuffers&>(buffers).batches.of(buffers.index_of(step))) {
        std::visit([this](const auto& operations) { compute(operations); }, batch);
        throw_if_aborted();
      }
      return {};
    } catch (...) {
      return Event::failed(std::make_exception_ptr(error_at(buffers.rank(), step, std::current_exception())));
    }
  }

  void abort(const Error& error) noexcept override {
    const std::scoped_lock lock(mutex_);
    if (!reason_) reason_ = error;
    stop_ = true;
  }

 private:
  void compute(std::span<const kernels::AttendArgs> list) { kernels_.attend(list, team_, stop_); }
  void compute(std::span<const kernels::AttendBackwardArgs> list) { kernels_.attend_backward(list, team_, stop_); }
  void compute(std::span<const kernels::MergeArgs> list) { kernels_.merge(list, team_, stop_); }
  void compute(std::span<const kernels::AccumulateArgs> list) { kernels_.accumulate(list, team_, stop_); }
  void compute(std::span<const kernels::ConvertArgs> list) { kernels_.convert(list, team_, stop_); }
  void compute(std::span<const FillArgs> list) { fill_all(list); }

  void throw_if_aborted() const {
    if (!stop_.load(std::memory_order_relaxed)) return;
    const std::scoped_lock lock(mutex_);
    throw Error(reason_->kind(), fmt::format("ended ({})", reason_->what()));
  }

  const kernels::HostKernels& kernels_;
  kernels::Team team_;
  const Allocator allocator_;
  kernels::StopFlag stop_{false};
  mutable std::mutex mutex_;
  std::optional<Error> reason_;
};

}  // namespace

std::unique_ptr<Device> make_host_device(const kernels::HostKernels& kernels, const DeviceOptions& options) {
  if (!options.variant.empty()) refuse("no kernel of the host is a variant " + options.variant + " (it has none)");
  if (options.step_graphs != StepGraphs::never) {
    refuse("graphs for a device of the host (they are CUDA's) leave them out, or choose backend cuda");
  }
  if (options.stream != nullptr) refuse("a stream for a device of the host (it computes on threads) leave it out");
  const int threads =
      options.threads > 0 ? options.threads : std::max(1, usable_cores() / std::max(1, options.local_ranks));
  return std::make_unique<HostDevice>(kernels, threads, options.allocator);
}

}  // namespace distattn::backends
