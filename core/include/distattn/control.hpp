#pragma once
/// Control channel between processes, separate from the data path: progress heartbeats and failure notices.

#include <chrono>
#include <functional>
#include <span>

#include "distattn/error.hpp"
#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// One rank's end of the control channel. Its heartbeat does not depend on the data path or on kernels. Thread-safe.
class Control {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~Control() = default;

  /// What the heartbeat carries. A rank makes progress while it computes, however long a step takes, and whenever a
  /// message that it awaits arrives. It rests while its compute lane waits for a message.
  virtual void computing(int step) noexcept = 0;
  virtual void resting() noexcept = 0;
  virtual void awaiting(Lane lane, Rank peer) noexcept = 0;
  virtual void arrived(Lane lane) noexcept = 0;
  /// This rank has made its last call: ranks that await a message of it afterwards wait in vain, and check() says so.
  virtual void leaving() noexcept {}

  /// Throws the failure that ended the run, Error(timeout) when `peer`, or the rank that it awaits in turn, has made no
  /// progress for the timeout, counted from `since` at the earliest, or Error(peer) when `peer` is leaving() and what
  /// it may have sent before has had time to come. Either ends the run for all ranks.
  virtual void check(Rank peer, Clock::time_point since) = 0;
  /// As check(), for a rank that awaits any of `peers` (at least one): throws when all of them leave, or none has made
  /// progress. Returns the peer that made progress last.
  virtual Rank check_any(std::span<const Rank> peers, Clock::time_point since) {
    for (const Rank peer : peers) check(peer, since);
    return peers.front();
  }
  /// The longest time that a rank may go without progress, also while it sets up a library that others wait for.
  virtual Clock::duration timeout() const noexcept { return std::chrono::hours(24 * 365); }
  /// Whether the failure of another rank would reach this rank at present. If not, the rank that passes failures on is
  /// itself late.
  virtual bool hears() const noexcept { return true; }
  /// Ends the run of all ranks with `error`; the first such call of any rank counts.
  virtual void abort(const Error& error) noexcept = 0;
  /// Calls `listener` with the failure that ends the run, immediately and on any thread; null removes it. Returns when
  /// no call of an earlier listener is in progress.
  virtual void on_failure(std::function<void(const Error&)> listener) = 0;
};

}  // namespace distattn
#pragma GCC visibility pop
