#include "backends/inproc/hub.hpp"

#include <fmt/core.h>

#include "backends/peer_left.hpp"
#include "distattn/index.hpp"

namespace distattn::backends::inproc {
namespace {

constexpr std::size_t exchange_lanes = 2;

std::size_t exchange_lane(Lane lane) { return lane == Lane::far ? 1 : 0; }

/// Copies piece by piece; the two sides may cut the same bytes differently.
void copy(std::span<const std::span<std::byte>> source, std::span<const std::span<std::byte>> target,
          BufferTable& buffers) {
  std::span<std::byte> from, into;
  auto next_from = source.begin();
  auto next_into = target.begin();
  while (true) {
    if (from.empty()) {
      if (next_from == source.end()) return;
      from = *next_from++;
    }
    if (into.empty()) into = *next_into++;
    const std::size_t bytes = std::min(from.size(), into.size());
    buffers.copy(into.data(), from.data(), bytes);
    from = from.subspan(bytes);
    into = into.subspan(bytes);
  }
}

}  // namespace

Hub::Hub(int ranks)
    : ranks_(ranks),
      waiting_(exchange_lanes * index(ranks) * index(ranks)),
      left_(index(ranks)),
      listeners_(index(ranks)) {}

Posted*& Hub::waiting(Rank from, Rank to, Lane lane) {
  const auto ranks = index(ranks_);
  return waiting_[(exchange_lane(lane) * ranks + index(from)) * ranks + index(to)];
}

void Hub::abort(Rank rank, const Error& error) noexcept {
  std::optional<Error> reason;
  {
    const std::scoped_lock lock(mutex_);
    if (failure_) return;
    failure_ = error;
    failed_rank_ = rank;
    reason = ended();
    for (Port* port : ports_) port->changed_.notify_all();
  }
  const std::scoped_lock lock(listeners_mutex_);
  told_ = true;
  for (std::size_t other = 0; other < listeners_.size(); ++other) {
    if (static_cast<Rank>(other) != rank && listeners_[other]) listeners_[other](*reason);
  }
}

void Hub::leave(Rank rank) {
  const std::scoped_lock lock(mutex_);
  left_[index(rank)] = 1;
  for (Port* port : ports_) port->changed_.notify_all();
}

Error Hub::ended() const {
  const ErrorKind kind = failure_->kind() == ErrorKind::interrupted ? ErrorKind::interrupted : ErrorKind::peer;
  return {kind, fmt::format("ended because rank {} failed ({})", failed_rank_, failure_->what())};
}

void Hub::on_failure(Rank rank, std::function<void(const Error&)> listener) {
  const std::scoped_lock lock(listeners_mutex_);
  std::function<void(const Error&)>& mine = listeners_[index(rank)];
  mine = std::move(listener);
  if (told_ && mine && rank != failed_rank_) mine(ended());  // neither changes any more
}

std::optional<Rank> Hub::failed() const {
  const std::scoped_lock lock(mutex_);
  return failure_ ? std::optional(failed_rank_) : std::nullopt;
}

Port::Port(Hub& hub, Rank rank, Lane lane, std::optional<std::uint64_t> delivery_seed)
    : hub_(hub),
      rank_(rank),
      lane_(lane),
      jitter_(delivery_seed, static_cast<std::uint32_t>(rank) * 2 + (lane == Lane::far ? 1 : 0)) {
  const std::scoped_lock lock(hub_.mutex_);
  hub_.ports_.push_back(this);
}

Port::~Port() {
  const std::scoped_lock lock(hub_.mutex_);
  std::erase(hub_.ports_, this);
}

void Port::exchange(const Step& step, BufferTable& buffers, std::span<Packet> packets) {
  step_ = &step;
  buffers_ = &buffers;
  jitter_.permute(packets);
  jitter_.pause();
  post(packets);
  for (const Pair& pair : pairs_) {
    jitter_.pause();
    deliver(pair);
  }
  wait();
  jitter_.pause();
}

void Port::post(std::span<Packet> packets) {
  posted_.clear();
  pairs_.clear();
  pairs_.reserve(packets.size());  // how many come second is a matter of time
  for (const Packet& packet : packets) posted_.push_back({this, &packet});

  const std::scoped_lock lock(hub_.mutex_);
  error_.clear();
  open_ = 0;
  if (hub_.failure_) return;
  for (Posted& mine : posted_) {
    const bool outgoing = mine.packet->outgoing;
    const Rank peer = mine.packet->peer;
    Posted*& waiting = outgoing ? hub_.waiting(rank_, peer, lane_) : hub_.waiting(peer, rank_, lane_);
    ++open_;
    if (waiting == nullptr) {
      waiting = &mine;
    } else {
      DISTATTN_EXPECT(waiting->port != this);
      pairs_.push_back(outgoing ? Pair{&mine, waiting} : Pair{waiting, &mine});
      waiting = nullptr;
    }
  }
}

PacketMark Port::mark(const Posted& posted) const {
  return {buffers_->outline().pass, step_->number, buffers_->call(), posted.packet->bytes};
}

void Port::deliver(const Pair& pair) {
  const Port &from = *pair.source->port, &to = *pair.target->port;
  std::string error = disagreement(from.rank_, from.mark(*pair.source), to.rank_, to.mark(*pair.target));
  try {
    if (error.empty()) copy(pair.source->packet->pieces, pair.target->packet->pieces, *buffers_);
  } catch (const Error& failure) {
    error = failure.what();  // a device's: both sides are told, so that neither waits for the rest
  }

  Port& other = *(pair.source->port == this ? pair.target->port : pair.source->port);
  bool wake = false;
  {
    const std::scoped_lock lock(hub_.mutex_);
    --open_;
    --other.open_;
    if (!error.empty()) error_ = other.error_ = error;
    wake = other.open_ == 0 || !error.empty();
  }
  if (wake) other.changed_.notify_one();
}

void Port::wait() {
  std::unique_lock lock(hub_.mutex_);
  std::optional<Rank> left;
  changed_.wait(lock, [&] {
    if (open_ == 0 || hub_.failure_ || !error_.empty()) return true;
    left = partner_that_left();
    return left.has_value();
  });
  if (!hub_.failure_ && error_.empty() && !left) return;

  withdraw();
  changed_.wait(lock, [&] { return open_ == 0; });
  if (left && !hub_.failure_ && error_.empty()) {
    const Error error = peer_has_left(*left, rank_);
    throw Error(error.kind(), fmt::format("{}: {}", place_of(rank_, *step_), error.what()));
  }
  if (!error_.empty()) throw Error(ErrorKind::peer, fmt::format("{}: {}", place_of(rank_, *step_), error_));
  const Error ended = hub_.ended();
  throw Error(ended.kind(), fmt::format("{}: {}", place_of(rank_, *step_), ended.what()));
}

std::optional<Rank> Port::partner_that_left() const {
  for (const Posted& mine : posted_) {
    const Rank peer = mine.packet->peer;
    if (hub_.left_[index(peer)] == 0) continue;
    const bool outgoing = mine.packet->outgoing;
    const Rank from = outgoing ? rank_ : peer, to = outgoing ? peer : rank_;
    if (hub_.waiting(from, to, lane_) == &mine) return peer;
  }
  return std::nullopt;
}

/// Takes back what nobody has begun to copy; the rest is waited for, because it is read or written right now.
void Port::withdraw() {
  for (Posted& mine : posted_) {
    const Rank peer = mine.packet->peer;
    Posted*& waiting = mine.packet->outgoing ? hub_.waiting(rank_, peer, lane_) : hub_.waiting(peer, rank_, lane_);
    if (waiting != &mine) continue;
    waiting = nullptr;
    --open_;
  }
}

}  // namespace distattn::backends::inproc
