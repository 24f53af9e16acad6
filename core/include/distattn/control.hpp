#pragma once
/// Beside the data: what ranks in different processes tell each other about how far they are and why they end.

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

  /// What the heartbeat carries. A rank makes progress while it computes, however long one step takes, and whenever
  /// what it awaits arrives. It rests when its compute lane can do nothing before a message has come.
  virtual void computing(int step) noexcept = 0;
  virtual void resting() noexcept = 0;
  virtual void awaiting(Lane lane, Rank peer) noexcept = 0;
  virtual void arrived(Lane lane) noexcept = 0;

  /// Throws the failure that ended the run, or Error(timeout) when `peer`, or the rank that it awaits in turn, has
  /// made no progress for the timeout, counted from `since` at the earliest. A timeout ends the run for all ranks.
  virtual void check(Rank peer, Clock::time_point since) = 0;
  /// As check() where any of `peers`, of which there is one at least, may be the one that is awaited: throws
  /// Error(timeout) when none of them has made progress. Returns the one that has made it last.
  virtual Rank check_any(std::span<const Rank> peers, Clock::time_point since) {
    for (const Rank peer : peers) check(peer, since);
    return peers.front();
  }
  /// For how long a rank may make no progress, such as while it sets up a library that others wait for.
  virtual Clock::duration timeout() const noexcept { return std::chrono::hours(24 * 365); }
  /// Whether the failure of another rank would be heard at the moment; if not, whoever passes it on is in trouble.
  virtual bool hears() const noexcept { return true; }
  /// Ends the run of all ranks with `error`; the first such call of any rank counts.
  virtual void abort(const Error& error) noexcept = 0;
  /// `listener` is called, at once and on any thread, with the failure that ended the run; null: nobody. Returns when
  /// no call of an earlier listener is under way.
  virtual void on_failure(std::function<void(const Error&)> listener) = 0;
};

}  // namespace distattn
#pragma GCC visibility pop
