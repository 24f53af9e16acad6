#pragma once
/// What a lane exchanges over: a stream, and communicators of all ranks and of rows of them.

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/exchange.hpp"
#include "backends/nccl/call_marks.hpp"
#include "backends/nccl/communicator.hpp"

namespace distattn::backends::nccl {

/// Messages go over the communicator of all ranks; gathers of a step (schedule.hpp) each over one of their members',
/// which is made when a row first gathers. issue() is called by one thread at a time, and on all ranks in one order;
/// the rest by any.
class LaneCommunicators {
 public:
  /// A collective, as Communicator's. Kernels run at high priority.
  LaneCommunicators(const Library& library, cuda::Driver& driver, const ncclUniqueId& id, Rank rank, int size,
                    const Watch& watch);

  cuda::Stream& stream() { return *stream_; }
  /// Starts the step's gathers and messages on stream(). What is to be compared once they have ended; null: nothing.
  std::shared_ptr<const CallMarks::Arrived> issue(const Step& step, const BufferTable& buffers, const Watch& watch);
  std::string fault();
  bool finalize(const Watch& watch) noexcept;
  /// All at present, each to be ended beside the others.
  std::vector<Communicator*> all();

 private:
  using Row = std::vector<Rank>;

  std::vector<Row> rows_of(const Step& step) const;
  Communicator& communicator_of(const Row& row, const Watch& watch);
  void share_id(const Row& row, const Watch& watch);
  ncclResult_t add_gather(const Gather& gather, const BufferTable& buffers, ncclComm_t comm) const;
  ncclResult_t add_message(bool outgoing, Rank peer, std::span<std::byte> memory, ncclComm_t comm) const;
  ncclResult_t add_messages(std::span<const Packet> packets, ncclComm_t comm) const;
  ncclResult_t add_marks(std::span<const CallMarks::Mark> marks, ncclComm_t comm) const;
  cudaStream_t handle() const { return static_cast<cudaStream_t>(stream_->handle()); }

  const Library& library_;
  cuda::Driver& driver_;
  const Rank rank_;
  const int size_;
  ncclUniqueId id_{};  // of the row that comes to be; the stream may still copy it when somebody has failed
  std::shared_ptr<std::byte> id_on_gpu_;
  CallMarks marks_;  // likewise
  const std::unique_ptr<cuda::Stream> stream_;
  Exchange exchange_;
  Communicator whole_;
  std::mutex mutex_;  // guards rows_
  std::map<Row, std::unique_ptr<Communicator>> rows_;
};

}  // namespace distattn::backends::nccl
