#pragma once
/// One communicator of NCCL.

#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <span>

#include "backends/cuda/driver.hpp"
#include "backends/nccl/library.hpp"
#include "backends/streams/event.hpp"

namespace distattn::backends::nccl {

/// Never blocks inside NCCL: what takes long is asked for again and again, so that an ending is seen at once.
/// issue() is called by one thread at a time; fault() and end() by any.
class Communicator {
 public:
  /// Of a communicator: ready when nothing of it is left, and until when that is worth waiting for.
  struct End {
    std::shared_future<void> over;
    std::chrono::steady_clock::time_point until;
  };

  /// Adds NCCL's calls to a group and returns the first that failed.
  using Calls = std::function<ncclResult_t(ncclComm_t)>;

  /// A collective of all ranks with the same `id`, for the GPU of `driver`. Throws Error as Library::check does, and
  /// what `watch` says.
  Communicator(const Library& library, cuda::Driver& driver, const ncclUniqueId& id, Rank rank, int size,
               const Watch& watch);
  /// As end() and await_ends().
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Starts `calls` as one group.
  void issue(const Calls& calls, const Watch& watch);
  /// What NCCL has found out since: empty as long as all is well.
  std::string fault();
  /// Returns when all messages have arrived, here and at other ranks; false: `watch` threw before that. Last call but
  /// end().
  bool finalize(const Watch& watch) noexcept;
  /// Begins to end it, unless that has been done, and work that is under way unless finalize() came first. NCCL waits
  /// for the whole GPU, where other communicators may have kernels: all are to be ended before one is waited for.
  End end() noexcept;

 private:
  void settle(const char* what, const Watch& watch);

  const Library& library_;
  cuda::Driver& driver_;
  std::mutex mutex_;  // guards what follows
  ncclComm_t comm_ = nullptr;
  bool finalized_ = false;
  End end_;  // valid once it has begun
};

/// Waits for what end() returned, but not for ever: NCCL also waits there for other ranks of the same machine, one of
/// which may hang. What has not ended then is left to itself.
void await_ends(std::span<const Communicator::End> ends) noexcept;

}  // namespace distattn::backends::nccl
