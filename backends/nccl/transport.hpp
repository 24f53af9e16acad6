#pragma once
/// Ranks in different processes, each with a GPU of its own, over NCCL.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "backends/nccl/issue_order.hpp"
#include "backends/nccl/lane.hpp"
#include "distattn/bootstrap.hpp"

namespace distattn::backends::nccl {

/// Near and far messages have communicators of their own; all ranks hand them over in one order (issue_order.hpp). A
/// step's event is ordered with the device's on the GPU: submit() does not wait for messages. Its events must not
/// outlive it. Destroyed where all is well, it waits a while for other ranks to end too.
class NcclTransport final : public Transport {
 public:
  /// A collective. `driver` is of this rank's GPU, which no other rank may use. All arguments must outlive it.
  NcclTransport(const Library& library, cuda::Driver& driver, Bootstrap& bootstrap, Lanes lanes = Lanes::both);
  ~NcclTransport() override;

  std::string_view name() const override { return "nccl"; }
  Rank rank() const override { return rank_; }
  int size() const override { return size_; }
  bool reaches(MemorySpace space) const override { return space == MemorySpace::cuda; }
  Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) override;
  void abort(const Error& error) noexcept override;
  void computing(int number) noexcept override;
  void resting() noexcept override;
  void on_failure(std::function<void(const Error&)> listener) override;

 private:
  class StepWatch;
  class ExchangeEvent;

  LaneCommunicators& communicators_of(Lane lane) { return lane == Lane::far ? *far_ : *near_; }
  std::shared_ptr<const Origin> await_turn(const Step& step, const BufferTable& buffers);
  void follow_last(cuda::Stream& stream);
  void pass_turn(const Step& step, const BufferTable& buffers, cuda::Stream& stream);
  void end(const Error& error) noexcept;
  void end_lanes() noexcept;

  const Rank rank_;
  const int size_;
  const bool takes_turns_;  // NCCL keeps no order: an exchange begins on the GPU when the last of either lane has ended
  Control* const control_;  // null where ranks share a process
  const std::shared_ptr<Ending> ending_ = std::make_shared<Ending>();
  std::optional<LaneCommunicators> near_, far_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable turn_;
  IssueOrder order_;
  std::shared_ptr<const Mark> last_;      // of the last exchange, if they take turns
  std::shared_ptr<const Origin> origin_;  // of the pass
};

}  // namespace distattn::backends::nccl
