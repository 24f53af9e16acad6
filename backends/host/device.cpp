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
#include "backends/host/caches.hpp"
#include "backends/host/workers.hpp"
#include "backends/placement.hpp"
#include "backends/staging.hpp"
#include "distattn/host_resources.hpp"
#include "kernels/pages.hpp"

namespace distattn::backends {
namespace {

constexpr std::int64_t delta_rows = 512;  // of o that a thread packs at a time

std::shared_ptr<std::byte> shared(kernels::Pages pages) { return {pages.release(), kernels::FreePages()}; }

/// Whole pages: what a transport registers is not shared with other memory.
std::shared_ptr<std::byte> allocate_memory(std::size_t bytes, Rank rank) {
  kernels::Pages pages = kernels::allocate_pages(bytes);
  if (pages == nullptr) {
    throw Error(ErrorKind::environment,
                fmt::format("rank {} cannot allocate {} bytes for its buffers (out of memory): use more ranks or a "
                            "schedule with fewer remote values",
                            rank, bytes));
  }
  return shared(std::move(pages));
}

class HostProgram final : public DeviceProgram {
 public:
  HostProgram(const Outline& outline, const RankProgram& program, Rank rank, const Allocator& memory, Workers& workers)
      : DeviceProgram(outline, program, rank, MemorySpace::host, memory(slots_bytes(program))),
        workers_(workers),
        placement_(*this),
        max_logits_(outline, memory),
        batches_(*this, placement_, max_logits_),
        staging_(*this, {delta_rows, workers.threads(), memory}, &placement_) {}

  Event load(const Bindings& bindings) override {
    workers_.throw_if_ended();
    staging_.load(bindings, workers_);
    batches_.bind(placement_);
    max_logits_.begin(workers_);
    batches_.set_dropout(bindings);
    workers_.throw_if_ended();
    return {};
  }
  Event submit(const Step& step, std::span<const Event> after) override {
    try {
      for (const Event& event : after) event.wait();
      for (const Batch& batch : batches_.of(index_of(step))) {
        std::visit([this](const auto& operations) { workers_.compute(operations); }, batch);
        workers_.throw_if_ended();
      }
      return {};
    } catch (...) {
      return Event::failed(std::make_exception_ptr(error_at(rank(), step, std::current_exception())));
    }
  }
  Event store(const Bindings& bindings, std::span<const Event> steps) override {
    for (const Event& step : steps) step.wait();
    workers_.throw_if_ended();
    staging_.store(bindings, workers_);
    max_logits_.store(bindings.max_logit, workers_);
    workers_.throw_if_ended();
    return {};
  }

 private:
  Workers& workers_;
  Placement placement_;
  MaxLogits max_logits_;
  Batches batches_;
  Staging staging_;
};

class HostDevice final : public Device {
 public:
  HostDevice(const kernels::HostKernels& kernels, int threads, Allocator allocator, std::shared_ptr<const void> kept)
      : kept_(std::move(kept)), workers_(kernels, threads), allocator_(std::move(allocator)), caches_(workers_) {}

  std::string_view name() const override { return workers_.kernels().name; }
  MemorySpace space() const override { return MemorySpace::host; }

  int query_block() const override { return workers_.kernels().query_block(); }
  int few_queries() const override { return workers_.kernels().few_queries(); }

  Features features(Pass) const override { return workers_.kernels().features; }

  /// Whole pages, large ones where the system has some: caches are read faster from these.
  std::shared_ptr<std::byte> allocate_tensor(std::size_t bytes) override {
    kernels::Pages pages = kernels::allocate_pages(bytes);
    if (pages == nullptr) throw Error(ErrorKind::environment, fmt::format("no {} bytes of memory are left", bytes));
    return shared(std::move(pages));
  }
  std::unique_ptr<DeviceProgram> allocate(const Outline& outline, const RankProgram& program, Rank rank) override {
    const Allocator memory = [this, rank](std::size_t bytes) {
      return allocator_ ? from_caller(allocator_, bytes, rank) : allocate_memory(bytes, rank);
    };
    return std::make_unique<HostProgram>(outline, program, rank, memory, workers_);
  }

  CacheReader* cache_reader() override { return workers_.kernels().reads_pages ? &caches_ : nullptr; }
  void abort(const Error& error) noexcept override { workers_.end(error); }

 private:
  std::string objection(const Problem& problem, Pass pass) const override {
    const std::string why = why_missing(name(), features(pass), features_of(problem));
    return why.empty() ? why : why + "; take backend reference";
  }

  const std::shared_ptr<const void> kept_;
  Workers workers_;
  const Allocator allocator_;
  Caches caches_;
};

}  // namespace

std::unique_ptr<Device> make_host_device(const kernels::HostKernels& kernels, const DeviceOptions& options,
                                         std::shared_ptr<const void> kept) {
  if (options.gpu != GpuOptions{}) {
    refuse(fmt::format("{} for a device of the host (GPUs alone know that): leave it out, or choose a backend of GPUs",
                       describe({.gpu = options.gpu})));
  }
  const int threads =
      options.threads > 0 ? options.threads : std::max(1, usable_cores() / std::max(1, options.local_ranks));
  return std::make_unique<HostDevice>(kernels, threads, options.allocator, std::move(kept));
}

}  // namespace distattn::backends
