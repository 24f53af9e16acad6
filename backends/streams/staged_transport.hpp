#pragma once
/// Messages between devices with memory of their own over a transport that reaches host memory alone.

#include <mutex>
#include <vector>

#include "backends/streams/event.hpp"
#include "distattn/engine.hpp"

namespace distattn::backends {

/// Every program's memory has a twin in host memory that the device reaches, as large: what a step sends is copied
/// there before, and what it receives is copied back behind. submit() blocks its lane until the messages have been
/// exchanged; copies are ordered with kernels there.
class StagedTransport final : public ForwardingTransport {
 public:
  /// Both must outlive it.
  StagedTransport(Streams& driver, Transport& over);
  /// Copies may be under way when a run has failed.
  ~StagedTransport() override;

  bool reaches(MemorySpace space) const override { return space == driver_.space(); }
  void prepare(BufferTable& buffers) override { over().prepare(twin_of(buffers)); }
  Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) override;
  void abort(const Error& error) noexcept override;
  void on_failure(std::function<void(const Error&)> listener) override;

 private:
  /// Used by one thread at a time, which the executor sees to.
  struct LaneState {
    std::unique_ptr<Stream> stream;
    std::shared_ptr<const Origin> origin;  // of the pass
  };
  struct Twin {
    std::weak_ptr<std::byte> of;
    std::unique_ptr<BufferTable> table;
  };

  /// Copies what the step sends and returns where to.
  BufferTable& to_host(const Step& step, const BufferTable& buffers, std::span<const Event> after);
  /// Copies what the step received.
  Event to_device(const Step& step, const BufferTable& buffers, const BufferTable& host);
  BufferTable& twin_of(const BufferTable& buffers);
  LaneState& state_of(Lane lane) { return lane == Lane::far ? far_ : near_; }

  Streams& driver_;
  const std::shared_ptr<Ending> ending_ = std::make_shared<Ending>();
  LaneState near_, far_;
  std::mutex mutex_;  // guards twins_
  std::vector<Twin> twins_;
};

}  // namespace distattn::backends
