#include "backends/launch/control_channel.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/core.h>

#include "backends/peer_left.hpp"
#include "distattn/index.hpp"
#include "distattn/thread.hpp"

namespace distattn::backends::launch {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::milliseconds;

/// Rank 0 says nothing while it waits for others to come: who waits for rank 0 lets it judge first.
constexpr RunningClock::duration lead_margin = milliseconds(750);

/// For what a rank sent before it left, which may still be on its way.
constexpr RunningClock::duration leaving_margin = std::chrono::seconds(2);

RunningClock::duration seconds(double s) { return duration_cast<Clock::duration>(duration<double>(s)); }

}  // namespace

ControlChannel::ControlChannel(Rank rank, int size, std::vector<Socket> sockets, double timeout_s)
    : rank_(rank),
      size_(size),
      timeout_(seconds(timeout_s)),
      interval_(seconds(std::clamp(timeout_s / 10, 0.05, 0.5))),
      left_(sockets.size()),
      liveness_(size, RunningClock::now() + (rank == 0 ? RunningClock::duration() : lead_margin)),
      heard_from_lead_(RunningClock::now() + lead_margin),
      brought_(index(size)),
      has_brought_(index(size)),
      wakeup_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  for (Socket& socket : sockets) peers_.emplace_back(std::move(socket));
  try {
    thread_ = std::thread([this] { serve(); });
  } catch (const std::system_error& refused) {
    throw no_thread(fmt::format("rank {}", rank), "talk to other ranks", refused);
  }
}

ControlChannel::~ControlChannel() {
  {
    const std::scoped_lock lock(mutex_);
    for (Connection& peer : peers_) peer.queue(FrameKind::farewell, {});
    closing_ = true;
    wake();
  }
  thread_.join();
}

void ControlChannel::computing(int step) noexcept {
  step_ = step;
  working_ = true;
  ++arrivals_;
}

void ControlChannel::arrived(Lane lane) noexcept {
  awaited(lane) = -1;
  ++arrivals_;
}

void ControlChannel::leaving() noexcept {
  const std::scoped_lock lock(mutex_);
  leaving_ = true;
  wake();
}

Status ControlChannel::own_status() const {
  Status status{step_, -1, arrivals_, leaving_ ? 1 : 0};
  if (in_collective_) {
    status.awaiting = leads() ? first_missing().value_or(-1) : 0;
  } else if (!working_) {
    status.awaiting = awaited_[0] >= 0 ? awaited_[0] : awaited_[1];
  }
  return status;
}

void ControlChannel::abort(const Error& error) noexcept {
  {
    const std::scoped_lock lock(mutex_);
    fail({rank_, error.kind(), error.what()});
    wake();
  }
}

void ControlChannel::on_failure(std::function<void(const Error&)> listener) {
  const std::scoped_lock lock(listener_mutex_);
  listener_ = std::move(listener);
  {
    const std::scoped_lock state(mutex_);
    told_listener_ = false;
  }
  wake();
}

void ControlChannel::fail(Failure failure) {
  if (failure_) return;
  failure_ = std::move(failure);
  PayloadWriter payload;
  payload.value(failure_->origin);
  payload.value(failure_->kind);
  payload.bytes(std::as_bytes(std::span(failure_->message)));
  for (Connection& peer : peers_) peer.queue(FrameKind::failure, payload.done());
  flush();  // now: the listener is called on the thread that else sends, and may take its time
  changed_.notify_all();
}

Error ControlChannel::error_of(const Failure& failure) const {
  const bool own = failure.origin == rank_;
  const bool keeps_kind = own || failure.kind == ErrorKind::timeout || failure.kind == ErrorKind::interrupted;
  const std::string name = fmt::format("rank {}", failure.origin);
  const bool named = failure.message.find("rank ") != std::string::npos;
  return {keeps_kind ? failure.kind : ErrorKind::peer,
          own || named ? failure.message : fmt::format("{} failed: {}", name, failure.message)};
}

void ControlChannel::throw_failure() const { throw error_of(*failure_); }

void ControlChannel::check(Rank peer, Clock::time_point since) {
  const std::scoped_lock lock(mutex_);
  check_left({&peer, 1}, RunningClock::at(since));
  check_held(peer, RunningClock::at(since));
}

/// A rank that gives its communicator back waits for the others, so that it is neither gone nor silent.
void ControlChannel::check_left(std::span<const Rank> peers, RunningClock::time_point since) {
  if (failure_) throw_failure();
  const auto now = RunningClock::now();
  const auto has_left = [&](Rank peer) {
    const auto left = liveness_.left(peer);
    return peer != rank_ && left && now - std::max(*left, since) > std::min<Clock::duration>(leaving_margin, timeout_);
  };
  if (!std::all_of(peers.begin(), peers.end(), has_left)) return;
  const Error error = peer_has_left(peers.front(), rank_);
  fail({rank_, error.kind(), error.what()});
  wake();
  throw_failure();
}

bool ControlChannel::hears() const noexcept {
  const std::scoped_lock lock(mutex_);
  return !lead_is_silent();
}

bool ControlChannel::lead_is_silent() const {
  return !leads() && RunningClock::now() - heard_from_lead_ > 3 * interval_;
}

/// A peer that waits for this rank in turn is as silent as the one that keeps both of them waiting, which is not to be
/// blamed while it works.
Rank ControlChannel::check_any(std::span<const Rank> peers, Clock::time_point since) {
  const std::scoped_lock lock(mutex_);
  const auto begun = RunningClock::at(since);
  check_left(peers, begun);
  const auto progress = [&](Rank peer) { return liveness_.progress(liveness_.culprit(peer, rank_)); };
  const auto earlier = [&](Rank a, Rank b) { return progress(a) < progress(b); };
  const Rank latest = *std::max_element(peers.begin(), peers.end(), earlier);
  const auto idle = RunningClock::now() - std::max(begun, progress(latest));
  const bool goes_on = !failure_ && !lead_is_silent() && idle <= timeout_;
  if (!goes_on) check_held(*std::min_element(peers.begin(), peers.end(), earlier), begun);
  return latest;
}

void ControlChannel::check_held(Rank peer, RunningClock::time_point since) {
  if (failure_) throw_failure();
  const auto now = RunningClock::now();
  // What others do is known from rank 0: while that is silent, nobody else can be blamed.
  const bool silent = lead_is_silent();
  Rank culprit = silent ? 0 : liveness_.culprit(peer);
  if (culprit == rank_) culprit = peer;
  const auto progress = silent ? heard_from_lead_ : std::max(since, liveness_.progress(culprit));
  if (now - progress <= timeout_) return;
  const int step = liveness_.status(culprit).step;
  fail({rank_, ErrorKind::timeout,
        fmt::format("rank {} made no progress for {:.3g} s ({}; rank {} waits for rank {}): give a longer timeout if "
                    "it is only slow",
                    culprit, duration<double>(timeout_).count(),
                    step < 0 ? "no step of it was known yet" : fmt::format("it was in step {}", step), rank_, peer)});
  wake();
  throw_failure();
}

std::optional<Rank> ControlChannel::first_missing() const {
  const auto missing = std::find(has_brought_.begin(), has_brought_.end(), 0);
  if (missing == has_brought_.end()) return std::nullopt;
  return static_cast<Rank>(missing - has_brought_.begin());
}

ControlChannel::BytesOfRanks ControlChannel::all_gather(std::span<const std::byte> mine) {
  std::unique_lock lock(mutex_);
  if (failure_) throw_failure();
  const auto since = RunningClock::now();
  in_collective_ = true;
  if (leads()) {
    take_contribution(0, mine);
  } else {
    peers_[0].queue(FrameKind::contribution, mine);
    flush();
  }
  wake();
  while (results_.empty()) {
    if (failure_) throw_failure();
    if (!leads()) check_held(0, since);
    for (Rank rank = 1; leads() && rank < size_; ++rank) {
      if (!has_brought_[index(rank)]) check_held(rank, since);
    }
    changed_.wait_for(lock, std::min<Clock::duration>(interval_, milliseconds(100)));
  }
  in_collective_ = false;
  ++arrivals_;
  beat();  // if the link is lost before the next, nobody shall think that this rank still awaits rank 0
  flush();
  BytesOfRanks result = std::move(results_.front());
  results_.pop_front();
  return result;
}

void ControlChannel::take_contribution(Rank from, std::span<const std::byte> bytes) {
  const auto r = index(from);
  brought_[r].assign(bytes.begin(), bytes.end());
  has_brought_[r] = 1;
  if (!first_missing()) finish_collective();
}

void ControlChannel::finish_collective() {
  PayloadWriter payload;
  for (const auto& bytes : brought_) payload.bytes(bytes);
  for (Connection& peer : peers_) peer.queue(FrameKind::result, payload.done());
  results_.push_back(std::exchange(brought_, BytesOfRanks(index(size_))));
  std::fill(has_brought_.begin(), has_brought_.end(), 0);
  flush();
  changed_.notify_all();
}

/// A connection that breaks while sending is found out by who reads from it.
void ControlChannel::flush() {
  for (Connection& peer : peers_) {
    if (peer.open() && !peer.flush()) peer.drop_output();
  }
}

void ControlChannel::wake() noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(::write(wakeup_.fd(), &one, sizeof one));
}

}  // namespace distattn::backends::launch
