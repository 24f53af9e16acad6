#pragma once
/// A GPU of the emulator behind the interface that the device uses: streams are threads, memory is the host's.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "backends/cuda/driver.hpp"

namespace simt {

/// Kernels run on the emulator, one at a time; copies and launches of different streams overtake each other as the
/// seed pleases, so that what is not ordered by marks shows. A faulty kernel fails its stream: marks behind it throw.
class EmulatedDriver final : public distattn::backends::cuda::Driver {
 public:
  /// Allocations past `memory_bytes` together fail.
  explicit EmulatedDriver(std::uint64_t seed, int architecture = 80, std::size_t memory_bytes = std::size_t{1} << 40)
      : first_seed_(seed), architecture_(architecture), seed_(seed), free_bytes_(memory_bytes) {}

  std::string_view name() const override { return "emulated"; }
  std::string identity() const override { return "emulated " + std::to_string(first_seed_); }
  distattn::kernels::cuda::Capability capability() const override { return {architecture_, block_shared_bytes_}; }
  std::shared_ptr<std::byte> allocate(std::size_t bytes, distattn::MemorySpace space) override;
  std::unique_ptr<distattn::backends::cuda::Stream> make_stream(distattn::backends::StreamPriority priority) override;
  /// `stream` is the handle() of a stream of this driver.
  std::unique_ptr<distattn::backends::cuda::Stream> adopt_stream(void* stream) override;
  std::unique_ptr<distattn::backends::cuda::Graph> record(
      const std::function<void(distattn::backends::cuda::Stream&)>& work) override;
  void make_current() override { ++made_current_; }
  void check(int status, const char* what) const override;
  /// Of a GPU with less room for a block than others of its generation. Before any device is made.
  void limit_shared_memory(std::size_t block_bytes) { block_shared_bytes_ = block_bytes; }
  /// Host memory allocated at present.
  std::size_t pinned_bytes() const { return pinned_bytes_; }
  /// How often a thread asked for this GPU on behalf of another library.
  int made_current() const { return made_current_; }
  /// Graphs recorded, and how often any was started.
  int graphs() const { return graphs_; }
  int graph_starts() const { return graph_starts_; }
  /// Makes the `count`-th launch fail that does `what`. Before any launch.
  void fail_when(std::string what, int count) {
    failing_ = std::move(what);
    calls_to_failure_ = count;
  }
  /// How often a thread of the host has waited for an emulated GPU: for a stream, or by asking again and again whether
  /// a mark has passed.
  static int host_waits();
  /// Sets the clock of all emulated GPUs on, as clocks of host and GPU drift apart.
  static void set_clock_on(std::chrono::seconds by);

 private:
  const std::uint64_t first_seed_;
  const int architecture_;
  std::size_t block_shared_bytes_ = 227 * 1024;
  std::atomic<std::uint64_t> seed_;
  std::atomic<std::size_t> free_bytes_;
  std::atomic<std::size_t> pinned_bytes_{0};
  std::atomic<int> made_current_{0}, graphs_{0}, graph_starts_{0};
  std::string failing_;
  mutable std::atomic<int> calls_to_failure_{0};
};

}  // namespace simt
