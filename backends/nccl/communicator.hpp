#pragma once
/// One communicator of NCCL.

#include <functional>
#include <mutex>

#include "backends/cuda/event.hpp"
#include "backends/nccl/library.hpp"

namespace distattn::backends::nccl {

/// Never blocks inside NCCL: what takes long is asked for again and again, so that an ending is seen at once.
/// issue() is called by one thread at a time; fault() and abort() by any.
class Communicator {
 public:
  /// Adds NCCL's calls to a group and returns the first that failed.
  using Calls = std::function<ncclResult_t(ncclComm_t)>;

  /// A collective of all ranks with the same `id`, for the GPU of `driver`. Throws Error as Library::check does, and
  /// what `watch` says.
  Communicator(const Library& library, cuda::Driver& driver, const ncclUniqueId& id, Rank rank, int size,
               const cuda::Watch& watch);
  /// Waits for nobody: work that is under way is ended, unless finalize() came first.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Starts `calls` as one group.
  void issue(const Calls& calls, const cuda::Watch& watch);
  /// What NCCL has found out since: empty as long as all is well.
  std::string fault();
  /// Returns when all messages have arrived, here and at other ranks; false: `watch` threw before that. Last call but
  /// abort().
  bool finalize(const cuda::Watch& watch) noexcept;
  /// Kernels that wait for other ranks end. Returns when the whole GPU has no work: where several communicators have
  /// kernels there, all are to be aborted at once.
  void abort() noexcept;

 private:
  void settle(const char* what, const cuda::Watch& watch);

  const Library& library_;
  cuda::Driver& driver_;
  bool finalized_ = false;
  std::mutex mutex_;  // guards what follows
  ncclComm_t comm_ = nullptr;
};

}  // namespace distattn::backends::nccl
