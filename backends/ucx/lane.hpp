#pragma once
/// The exchange of one lane over UCX: the messages of a step, from posting to the last byte.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "backends/exchange.hpp"
#include "backends/ucx/idle.hpp"
#include "backends/ucx/worker.hpp"
#include "distattn/control.hpp"

namespace distattn::backends::ucx {

/// How the pieces of a message travel. UCX takes lists of pieces in host memory alone, and both ends must do the same.
enum class Pieces : bool { in_lists, alone };

/// Not thread-safe, except where noted.
class ExchangeLane {
 public:
  using Clock = Control::Clock;

  ExchangeLane(std::unique_ptr<Worker> worker, Lane lane, Rank rank, Control& control, Pieces pieces)
      : worker_(std::move(worker)), lane_(lane), rank_(rank), control_(control), pieces_(pieces) {}

  /// After a failure: skips the orderly shutdown.
  ~ExchangeLane();
  ExchangeLane(const ExchangeLane&) = delete;
  ExchangeLane& operator=(const ExchangeLane&) = delete;

  Worker& worker() { return *worker_; }

  /// Returns when all messages of the step have been exchanged. Throws Error naming rank, step and edge.
  void exchange(const Step& step, const BufferTable& buffers, const RegisteredMemory* memory);
  /// Any thread, between exchanges: serves other ranks, as by accepting a connection. Returns whether there was
  /// anything to do.
  bool serve();
  /// Set to end exchange(), which polls it, when the run has ended for another reason.
  std::atomic<bool>& ended() { return ended_; }
  /// Any thread: whether the lane waits for a message, and `error` extended by the message that it waits for.
  bool waits() const { return awaited_ >= 0; }
  Error seen_from_here(const Error& error) const;

 private:
  void list(std::span<const Packet> packets, const RegisteredMemory* memory);
  InFlight& add(const Packet& packet, const RegisteredMemory* memory);
  void post(const Step& step);
  void wait(const Step& step);
  void await_next(std::size_t next);
  void look(const Step& step, std::size_t next, Clock::time_point since);
  void look_for_other_calls(const Step& step, const InFlight& awaited);
  void check_arrived(const Step& step, const InFlight& message);
  void check(Rank peer, Clock::time_point since);
  Rank check_any(Clock::time_point since);
  void await(Rank peer, bool outgoing = false);
  void finish();
  void await_verdict(Rank peer);
  [[noreturn]] void disagree(const Step& step, const InFlight& expected, const std::optional<PacketMark>& sent);
  [[noreturn]] void fail_connection(const Step& step, Rank peer, ucs_status_t status);
  [[noreturn]] void fail(const Step& step, const InFlight& message, const std::string& why);
  std::string edge(Rank peer, bool outgoing) const;
  std::uint64_t tag(const Step& step, Rank sender) const;

  std::mutex mutex_;  // held by who uses the worker
  const std::unique_ptr<Worker> worker_;
  const Lane lane_;
  const Rank rank_;
  Control& control_;
  const Pieces pieces_;
  Exchange exchange_;
  std::vector<InFlight> messages_;  // of the step; those in use come first
  std::size_t count_ = 0;
  std::vector<Rank> peers_;  // of these messages
  InFlight flushing_;
  Idle idle_;
  std::atomic<bool> ended_{false};
  Pass pass_ = Pass::forward;    // of the program whose step it is
  std::uint64_t call_ = 0;       // likewise
  std::atomic<int> number_{-1};  // of the step
  std::atomic<Rank> awaited_{-1};
  std::atomic<bool> awaited_outgoing_{false};
};

}  // namespace distattn::backends::ucx
