#include "backends/ucx/lane.hpp"

#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include <fmt/core.h>

namespace distattn::backends::ucx {
namespace {

constexpr auto looking_interval = std::chrono::milliseconds(20);
constexpr auto verdict_time = std::chrono::seconds(1);  // for the control channel to say whose fault it was

// A tag: step, pass, call and due step, sender.
constexpr int sender_bits = 24, call_bits = 19, pass_bits = 1, number_bits = 20;
static_assert(sender_bits + call_bits + pass_bits + number_bits == 64);

constexpr std::uint64_t low_bits(int count) { return (std::uint64_t{1} << count) - 1; }

/// What a tag says of its message.
PacketMark mark_of(std::uint64_t tag, std::size_t bytes) {
  PacketMark mark;
  mark.step = static_cast<int>(tag >> (sender_bits + call_bits + pass_bits));
  mark.pass = static_cast<Pass>(tag >> (sender_bits + call_bits) & low_bits(pass_bits));
  mark.call = tag >> sender_bits & low_bits(call_bits);
  mark.bytes = bytes;
  return mark;
}

/// Whether data flows, however slowly. A worker for which nothing comes does not move, unless a user lets UCX ask peers
/// whether they live, every few seconds: looks at that are too few for a stream.
class Stream {
 public:
  explicit Stream(Control::Clock::time_point now) : since_(now) {}

  /// `moved`: since the last look.
  bool flows(bool moved, Control::Clock::time_point now) {
    constexpr int looks_at_a_stream = 3;
    constexpr auto time = std::chrono::seconds(2);
    if (moved) ++looks_;
    const bool flows = looks_ == looks_at_a_stream;
    if (flows || now - since_ > time) {
      since_ = now;
      looks_ = 0;
    }
    return flows;
  }

 private:
  int looks_ = 0;  // at which it moved
  Control::Clock::time_point since_;
};

/// "; here UCX_TLS=self": what a user has chosen.
std::string own_choice() {
  std::string chosen;
  for (const char* name : {"UCX_TLS", "UCX_NET_DEVICES"}) {
    if (const char* const value = std::getenv(name)) chosen += fmt::format("; here {}={}", name, value);
  }
  return chosen;
}

}  // namespace

/// Messages of one edge are exchanged one group after the other, so that runs need no number, and two calls that have
/// a tag in common, by chance, only miss that they differ.
std::uint64_t ExchangeLane::tag(const Step& step, Rank sender) const {
  const auto number = static_cast<std::uint64_t>(step.number);
  DISTATTN_EXPECT(number <= low_bits(number_bits) && sender <= static_cast<Rank>(low_bits(sender_bits)));
  const std::uint64_t call = (call_ + static_cast<std::uint64_t>(step.due)) & low_bits(call_bits);
  const std::uint64_t marks = (number << pass_bits | static_cast<std::uint64_t>(pass_)) << call_bits | call;
  return marks << sender_bits | static_cast<std::uint64_t>(sender);
}

ExchangeLane::~ExchangeLane() {
  try {
    control_.check(rank_, Clock::now());
  } catch (const Error&) {
    worker_->leave({});
  }
}

Error ExchangeLane::seen_from_here(const Error& error) const {
  const Rank awaited = awaited_;
  if (awaited < 0) return {error.kind(), fmt::format("{}; rank {} awaited no edge at that time", error.what(), rank_)};
  return {error.kind(), fmt::format("{}; rank {} awaited {} in step {}, {} lane", error.what(), rank_,
                                    edge(awaited, awaited_outgoing_), number_.load(), name_of(lane_))};
}

void ExchangeLane::await(Rank peer, bool outgoing) {
  awaited_outgoing_ = outgoing;
  awaited_ = peer;
  if (peer >= 0)
    control_.awaiting(lane_, peer);
  else
    control_.arrived(lane_);
}

void ExchangeLane::check(Rank peer, Clock::time_point since) {
  try {
    control_.check(peer, since);
  } catch (const Error& error) {
    throw seen_from_here(error);
  }
}

Rank ExchangeLane::check_any(Clock::time_point since) {
  try {
    return control_.check_any(peers_, since);
  } catch (const Error& error) {
    throw seen_from_here(error);
  }
}

void ExchangeLane::exchange(const Step& step, const BufferTable& buffers, const RegisteredMemory* memory) {
  const std::scoped_lock lock(mutex_);
  list(exchange_.collect(step, buffers), memory);
  if (count_ == 0) return;
  number_ = step.number;
  pass_ = buffers.outline().pass;
  call_ = buffers.call();
  await_next(0);
  try {
    post(step);
    wait(step);
  } catch (...) {
    ended_ = true;
    worker_->leave(std::span(messages_).first(count_));
    throw;
  }
}

bool ExchangeLane::serve() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock && !ended_ && worker_->progress();
}

void ExchangeLane::list(std::span<const Packet> packets, const RegisteredMemory* memory) {
  count_ = 0;
  peers_.clear();
  for (const Packet& packet : packets) {
    peers_.push_back(packet.peer);
    InFlight* message = &add(packet, memory);
    for (const std::span<std::byte> piece : packet.pieces) {
      if (pieces_ == Pieces::alone && !message->pieces.empty()) message = &add(packet, memory);
      ucp_dt_iov_t* last = message->pieces.empty() ? nullptr : &message->pieces.back();
      if (last != nullptr && static_cast<std::byte*>(last->buffer) + last->length == piece.data()) {
        last->length += piece.size();
      } else {
        message->pieces.push_back({piece.data(), piece.size()});
      }
      message->bytes += piece.size();
    }
  }
  flushing_.done = false;
  flushing_.peer = -1;
  flushing_.outgoing = true;
}

/// Another message of the step, empty yet; earlier ones may move. Those of one edge keep their order.
InFlight& ExchangeLane::add(const Packet& packet, const RegisteredMemory* memory) {
  if (messages_.size() == count_) messages_.emplace_back();
  InFlight& message = messages_[count_++];
  message.peer = packet.peer;
  message.outgoing = packet.outgoing;
  message.bytes = 0;
  message.done = false;
  message.memory = memory;
  message.pieces.clear();
  return message;
}

/// Sends first. A receive whose message was announced asks for it at once, and what a peer then sends would stand
/// before its consent to be sent something: two that exchange would take turns.
void ExchangeLane::post(const Step& step) {
  for (const bool outgoing : {true, false}) {
    for (std::size_t i = 0; i < count_; ++i) {
      InFlight& message = messages_[i];
      if (message.outgoing != outgoing) continue;
      if (outgoing)
        worker_->send(message, tag(step, rank_));
      else
        worker_->receive(message, tag(step, message.peer));
    }
  }
  worker_->flush(flushing_);
}

void ExchangeLane::wait(const Step& step) {
  auto since = Clock::now(), looked = since;
  Stream stream(since);
  std::size_t next = 0;  // all before it are done
  bool moved = false;
  idle_.reset();
  while (true) {
    while (next < count_ && messages_[next].done) check_arrived(step, messages_[next++]);
    if (next == count_ && flushing_.done) break;
    if (worker_->progress()) {
      moved = true;
      idle_.reset();
    } else {
      idle_.wait();
    }
    await_next(next);
    if (ended_.load(std::memory_order_relaxed)) check(awaited_, since);
    if (Clock::now() - looked < looking_interval) continue;
    looked = Clock::now();
    if (stream.flows(std::exchange(moved, false), looked)) {
      await(-1);
      since = looked;
    } else {
      look(step, next, since);
    }
  }
  if (flushing_.status != UCS_OK) {
    fail_connection(step, worker_->failed_peer() >= 0 ? worker_->failed_peer() : peers_.front(), flushing_.status);
  }
  await(-1);
  finish();
}

/// Says which message is awaited; behind the last, of which peer it is not known whether it takes what it is sent.
void ExchangeLane::await_next(std::size_t next) {
  if (next < count_) {
    const InFlight& message = messages_[next];
    if (message.peer != awaited_ || message.outgoing != awaited_outgoing_) await(message.peer, message.outgoing);
  } else if (awaited_ < 0 || !awaited_outgoing_) {
    await(peers_.front(), true);
  }
}

/// Whether what is awaited, the message `next` or that all have left, can still be had.
void ExchangeLane::look(const Step& step, std::size_t next, Clock::time_point since) {
  if (next < count_) {
    check(messages_[next].peer, since);
  } else {
    await(check_any(since), true);
  }
  if (worker_->failed_peer() >= 0) fail_connection(step, worker_->failed_peer(), worker_->failure());
  if (next < count_ && !messages_[next].outgoing) look_for_other_calls(step, messages_[next]);
}

/// Messages that say that the sender is in another step or call. Senders do not run ahead: a later message of a rank
/// that owes this one an earlier message will never be asked for.
void ExchangeLane::look_for_other_calls(const Step& step, const InFlight& awaited) {
  std::uint64_t found = 0;
  std::size_t bytes = 0;
  const auto sender = static_cast<std::uint64_t>(awaited.peer);
  if (!worker_->unexpected(sender, low_bits(sender_bits), found, bytes) || awaited.done) return;
  disagree(step, awaited, mark_of(found, bytes));
}

void ExchangeLane::check_arrived(const Step& step, const InFlight& message) {
  if (message.status == UCS_ERR_MESSAGE_TRUNCATED) disagree(step, message, std::nullopt);
  if (message.status == UCS_OK && !message.outgoing && message.received != message.bytes) {
    disagree(step, message, mark_of(tag(step, message.peer), message.received));
  }
  if (message.status != UCS_OK) fail(step, message, library().status_string(message.status));
}

void ExchangeLane::finish() {
  for (std::size_t i = 0; i < count_; ++i) Worker::release(messages_[i]);
  Worker::release(flushing_);
}

std::string ExchangeLane::edge(Rank peer, bool outgoing) const {
  return outgoing ? fmt::format("edge {} -> {}", rank_, peer) : fmt::format("edge {} -> {}", peer, rank_);
}

void ExchangeLane::fail_connection(const Step& step, Rank peer, ucs_status_t status) {
  InFlight broken;
  broken.peer = peer;
  broken.outgoing = true;
  fail(step, broken, fmt::format("the connection broke: {}", library().status_string(status)));
}

/// `sent`: what came in the place of `expected`; none: more than that.
void ExchangeLane::disagree(const Step& step, const InFlight& expected, const std::optional<PacketMark>& sent) {
  await_verdict(expected.peer);
  std::string why;
  if (sent) why = disagreement(expected.peer, *sent, rank_, mark_of(tag(step, expected.peer), expected.bytes));
  if (why.empty()) {
    why = fmt::format(
        "rank {} sends more to rank {} in step {} than the {} bytes that are expected (they run different "
        "programs): give all ranks the same input and options",
        expected.peer, rank_, step.number, expected.bytes);
  }
  throw Error(ErrorKind::peer, fmt::format("{}: {}", place_of(rank_, step), why));
}

/// The network notices a death at about the same time as the control channel, which knows more about it: also whether
/// the peer has only given up on a third rank.
void ExchangeLane::await_verdict(Rank peer) {
  const auto begin = Clock::now();
  while (Clock::now() < begin + verdict_time || !control_.hears()) {
    check(peer, begin);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void ExchangeLane::fail(const Step& step, const InFlight& message, const std::string& why) {
  await_verdict(message.peer);
  if (why.find(library().status_string(UCS_ERR_UNREACHABLE)) != std::string::npos) {
    throw Error(ErrorKind::environment,
                fmt::format("{}, {}: {} (UCX has no transport that both ranks use{}): set UCX_TLS and UCX_NET_DEVICES "
                            "alike on all ranks, as UCX_TLS=tcp,self, or unset them",
                            place_of(rank_, step), edge(message.peer, message.outgoing), why, own_choice()));
  }
  throw Error(ErrorKind::peer,
              fmt::format("{}, {}: {} (rank {} failed or its connection broke): see its own output",
                          place_of(rank_, step), edge(message.peer, message.outgoing), why, message.peer));
}

}  // namespace distattn::backends::ucx
