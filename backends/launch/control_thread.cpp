#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/core.h>

#include "backends/launch/control_channel.hpp"
#include "distattn/index.hpp"

namespace distattn::backends::launch {
namespace {

using std::chrono::duration_cast;
using std::chrono::microseconds;

constexpr auto farewell_time = std::chrono::seconds(1);
constexpr microseconds longest_age = std::chrono::hours(24 * 365);  // clocks count it without overflow

/// How a table travels: ages, because clocks differ between machines.
struct TableEntry {
  Status status;
  std::int64_t progress_age_us = 0;
};

}  // namespace

void ControlChannel::serve() {
  auto next_beat = RunningClock::now();
  std::optional<RunningClock::time_point> end;
  while (true) {
    {
      const std::scoped_lock lock(mutex_);
      if (!closing_ && RunningClock::now() >= next_beat) {
        beat();
        next_beat = RunningClock::now() + interval_;
      }
      flush();
      if (closing_ && !end) end = RunningClock::now() + farewell_time;
      if (end && (RunningClock::now() >= *end || !linger())) return;
    }
    wait_for_sockets();
    receive();
    call_listener();
  }
}

/// At the end: whether some peer has not closed yet. A socket that is closed before all was read from it would take
/// what it has sent away from the peer, the reason of a failure too.
bool ControlChannel::linger() {
  bool lingers = false;
  for (Connection& peer : peers_) {
    if (!peer.open()) continue;
    if (!peer.has_output()) peer.finish();
    lingers = true;
  }
  return lingers;
}

void ControlChannel::wait_for_sockets() {
  std::vector<pollfd> entries{{wakeup_.fd(), POLLIN, 0}};
  auto wait = std::chrono::ceil<std::chrono::milliseconds>(interval_);
  {
    const std::scoped_lock lock(mutex_);
    if (closing_) wait /= 10;
    for (const Connection& peer : peers_) {
      const auto events = static_cast<short>(POLLIN | (peer.has_output() ? POLLOUT : 0));
      if (peer.open()) entries.push_back({peer.socket().fd(), events, 0});
    }
  }
  ::poll(entries.data(), entries.size(), static_cast<int>(wait.count()));
  std::uint64_t woken = 0;
  static_cast<void>(::read(wakeup_.fd(), &woken, sizeof woken));
}

void ControlChannel::receive() {
  const std::scoped_lock lock(mutex_);
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (!peers_[i].open()) continue;
    const auto from = static_cast<Rank>(i);
    bool sound = false;
    try {
      sound = peers_[i].receive([&](FrameKind kind, std::span<const std::byte> payload) { take(from, kind, payload); });
    } catch (const Error&) {
      sound = false;
    }
    if (sound) continue;
    peers_[i].close();
    if (!left_[i] && !closing_) lose(from);
  }
}

void ControlChannel::take(Rank from, FrameKind kind, std::span<const std::byte> payload) {
  if (!leads()) heard_from_lead_ = RunningClock::now();
  switch (kind) {
    case FrameKind::contribution:
      take_contribution(from, payload);
      break;
    case FrameKind::result: {
      PayloadReader reader(payload);
      BytesOfRanks result;  // whole before anybody sees it: the payload may end too early
      for (Rank rank = 0; rank < size_; ++rank) {
        const auto bytes = reader.bytes();
        result.emplace_back(bytes.begin(), bytes.end());
      }
      results_.push_back(std::move(result));
      changed_.notify_all();
      break;
    }
    case FrameKind::heartbeat:
      liveness_.heard(from, PayloadReader(payload).value<Status>(), RunningClock::now());
      break;
    case FrameKind::table:
      take_table(payload);
      break;
    case FrameKind::failure:
      take_failure(payload);
      break;
    case FrameKind::farewell:
      left_[index(from)] = 1;
      break;
  }
}

void ControlChannel::take_table(std::span<const std::byte> payload) {
  PayloadReader reader(payload);
  for (Rank rank = 0; rank < size_; ++rank) {
    const auto entry = reader.value<TableEntry>();
    const auto age = std::clamp(microseconds(entry.progress_age_us), microseconds(0), longest_age);
    const auto now = RunningClock::now();
    liveness_.told(rank, entry.status, now - age, now);
  }
}

void ControlChannel::take_failure(std::span<const std::byte> payload) {
  PayloadReader reader(payload);
  Failure failure;
  failure.origin = reader.value<Rank>();
  failure.kind = reader.value<ErrorKind>();
  const auto text = reader.bytes();
  failure.message.assign(reinterpret_cast<const char*>(text.data()), text.size());
  // An error is one line, whoever says it.
  std::replace_if(
      failure.message.begin(), failure.message.end(), [](char c) { return 0 <= c && c < ' '; }, ' ');
  if (failure.message.empty()) failure.message = "it did not say why";
  fail(std::move(failure));
}

/// A process that ends without farewell closes its connection, however it ended.
void ControlChannel::lose(Rank peer) {
  const int step = liveness_.status(peer).step;
  fail({peer, ErrorKind::peer,
        fmt::format("rank {} is gone (its process ended or its connection broke; {}): look at its own output", peer,
                    step < 0 ? "no step of it was known yet" : fmt::format("it was in step {}", step))});
}

void ControlChannel::beat() {
  if (!leads()) {
    PayloadWriter payload;
    payload.value(own_status());
    peers_[0].queue(FrameKind::heartbeat, payload.done());
    return;
  }
  liveness_.heard(0, own_status(), RunningClock::now());
  PayloadWriter table;
  for (Rank rank = 0; rank < size_; ++rank) {
    const auto age = duration_cast<microseconds>(RunningClock::now() - liveness_.progress(rank)).count();
    table.value(TableEntry{liveness_.status(rank), age});
  }
  for (Connection& peer : peers_) peer.queue(FrameKind::table, table.done());
}

void ControlChannel::call_listener() {
  const std::scoped_lock lock(listener_mutex_);
  std::optional<Error> error;
  {
    const std::scoped_lock state(mutex_);
    if (failure_ && !told_listener_) error = error_of(*failure_);
    told_listener_ = told_listener_ || error.has_value();
  }
  if (error && listener_) listener_(*error);
}

}  // namespace distattn::backends::launch
