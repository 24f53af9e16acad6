#pragma once
/// A space of Kokkos as memory and streams. Kokkos tells nobody when an instance has come to some point, other than by
/// waiting for it: a stream is a thread that does so, with an instance of its own.

#include <functional>

#include "backends/streams/stream.hpp"
#include "kernels/portable/device.hpp"

namespace distattn::backends {

class SpaceStream;

/// The memory of a space: what lies in it is known, because Kokkos copies between memories that it is told.
class SpaceStreams final : public Streams {
 public:
  /// `device`, which is ready, must outlive it. `threads`: of a team, where the space is one of the host.
  SpaceStreams(kernels::portable::SpaceDevice& device, int threads);

  std::string_view name() const override { return name_; }
  MemorySpace space() const override { return device_.space(); }
  std::shared_ptr<std::byte> allocate(std::size_t bytes, MemorySpace in) override;
  std::unique_ptr<Stream> open_stream(StreamPriority priority) override;
  std::unique_ptr<SpaceStream> make_space_stream();

  /// Memory of the space that the caller has allocated: known, to all ranks of the process, while `memory` is.
  static std::shared_ptr<std::byte> know(std::shared_ptr<std::byte> memory, std::size_t bytes);
  static kernels::portable::Way way(const void* into, const void* from);
  /// Kernels that have begun end early, and others at once.
  void stop() noexcept { __atomic_store_n(stop_, 1, __ATOMIC_RELAXED); }

 private:
  kernels::portable::SpaceDevice& device_;
  const std::string name_;
  const int threads_;
  std::shared_ptr<std::byte> stop_memory_;
  int* stop_;
};

/// What is appended to it is done in order by its thread. After a failure nothing more is done, and marks throw it.
class SpaceStream final : public Stream {
 public:
  using Work = std::function<void(kernels::portable::SpaceQueue&)>;

  explicit SpaceStream(std::unique_ptr<kernels::portable::SpaceQueue> queue);
  ~SpaceStream() override;

  void append(Work work);

  void copy(void* into, const void* from, std::size_t bytes) override;
  void clear(void* into, std::size_t bytes) override;
  std::shared_ptr<const Mark> mark() override;
  bool wait_for(const Mark& mark) override;
  void finish() noexcept override;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace distattn::backends
