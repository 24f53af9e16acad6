#pragma once
/// The control channel of one process: a star of connections around rank 0, served by a thread of its own.

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backends/launch/connection.hpp"
#include "backends/launch/liveness.hpp"
#include "distattn/control.hpp"

namespace distattn::backends::launch {

/// Carries collectives, heartbeats and the end of a run. Rank 0 passes on what concerns others.
class ControlChannel final : public Control {
 public:
  using BytesOfRanks = std::vector<std::vector<std::byte>>;

  /// Rank 0 has a socket for every other rank, by rank; the others one, to rank 0, at [0].
  ControlChannel(Rank rank, int size, std::vector<Socket> sockets, double timeout_s);
  /// Says farewell, and gives the peers a second to read it.
  ~ControlChannel() override;
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  /// Everybody's bytes, by rank. One collective at a time; all ranks in the same order.
  BytesOfRanks all_gather(std::span<const std::byte> mine);

  void computing(int step) noexcept override;
  void resting() noexcept override { working_ = false; }
  void awaiting(Lane lane, Rank peer) noexcept override { awaited(lane) = peer; }
  void arrived(Lane lane) noexcept override;
  void leaving() noexcept override;
  void check(Rank peer, Clock::time_point since) override;
  Rank check_any(std::span<const Rank> peers, Clock::time_point since) override;
  Clock::duration timeout() const noexcept override { return timeout_; }
  bool hears() const noexcept override;
  void abort(const Error& error) noexcept override;
  void on_failure(std::function<void(const Error&)> listener) override;

 private:
  struct Failure {
    Rank origin = 0;
    ErrorKind kind = ErrorKind::peer;
    std::string message;
  };

  std::atomic<Rank>& awaited(Lane lane) { return awaited_[lane == Lane::far ? 1 : 0]; }
  bool leads() const { return rank_ == 0; }

  // On the channel's thread.
  void serve();
  bool linger();
  void wait_for_sockets();
  void receive();
  void take(Rank from, FrameKind kind, std::span<const std::byte> payload);
  void take_table(std::span<const std::byte> payload);
  void take_contribution(Rank from, std::span<const std::byte> bytes);
  void take_failure(std::span<const std::byte> payload);
  void lose(Rank peer);
  void beat();
  void call_listener();

  // With mutex_ held.
  Status own_status() const;
  void fail(Failure failure);
  [[noreturn]] void throw_failure() const;
  Error error_of(const Failure& failure) const;
  bool lead_is_silent() const;
  void check_held(Rank peer, RunningClock::time_point since);
  void check_left(std::span<const Rank> peers, RunningClock::time_point since);
  std::optional<Rank> first_missing() const;
  void finish_collective();
  void flush();
  void wake() noexcept;

  const RunningClock::Keeper keeps_time_;
  const Rank rank_;
  const int size_;
  const Clock::duration timeout_, interval_;

  std::atomic<int> step_{-1};
  std::atomic<bool> working_{true};  // the compute lane, or the program around the run
  std::array<std::atomic<Rank>, 2> awaited_{-1, -1};
  std::atomic<std::uint64_t> arrivals_{0};
  std::atomic<bool> leaving_{false};

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Connection> peers_;
  std::vector<char> left_;  // said farewell
  Liveness liveness_;
  RunningClock::time_point heard_from_lead_;
  std::optional<Failure> failure_;
  bool told_listener_ = false;
  BytesOfRanks brought_;  // rank 0: of the collective that is under way
  std::vector<char> has_brought_;
  bool in_collective_ = false;
  std::deque<BytesOfRanks> results_;
  bool closing_ = false;

  std::mutex listener_mutex_;  // held while the listener is called
  std::function<void(const Error&)> listener_;

  Socket wakeup_;
  std::thread thread_;
};

}  // namespace distattn::backends::launch
