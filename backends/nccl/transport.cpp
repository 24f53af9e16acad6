#include "backends/nccl/transport.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "backends/running_clock.hpp"

namespace distattn::backends::nccl {
namespace {

constexpr auto looking_interval = std::chrono::milliseconds(20);
constexpr auto closing_time = std::chrono::seconds(5);  // for other ranks' exchanges to end too
constexpr auto verdict_time = std::chrono::seconds(1);  // for the control channel to say whose fault it was

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// NCCL itself finds this out late, and in other words.
void expect_gpus_of_their_own(const cuda::Driver& driver, Bootstrap& bootstrap) {
  const std::string mine = driver.identity();
  const auto all = bootstrap.all_gather(std::as_bytes(std::span(mine)));
  std::map<std::string, Rank> users;
  for (Rank rank = 0; rank < bootstrap.size(); ++rank) {
    const auto [first, added] = users.try_emplace(text_of(all[index(rank)]), rank);
    if (added) continue;
    refuse(
        fmt::format("ranks {} and {} would share a GPU ({}, and NCCL needs one for each rank): start no more ranks "
                    "on a machine than it has GPUs, or take transport ucx",
                    first->second, rank, first->first));
  }
}

/// Drawn by rank 0 for everybody.
ncclUniqueId shared_id(const Library& library, Bootstrap& bootstrap) {
  ncclUniqueId id{};
  if (bootstrap.rank() == 0) library.check(library.get_unique_id(&id), "make an id");
  const auto all = bootstrap.all_gather(std::as_bytes(std::span(&id, bootstrap.rank() == 0 ? 1u : 0u)));
  DISTATTN_EXPECT(all[0].size() == sizeof id);
  std::copy(all[0].begin(), all[0].end(), reinterpret_cast<std::byte*>(&id));
  return id;
}

std::vector<Rank> peers_of(const Step& step) {
  std::vector<Rank> peers;
  for (const Op& op : step.ops) {
    if (const auto* send = std::get_if<Send>(&op)) peers.push_back(send->to);
    if (const auto* recv = std::get_if<Recv>(&op)) peers.push_back(recv->from);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

/// Until the transport has been told to end, or its time is up.
class ClosingWatch final : public Watch {
 public:
  explicit ClosingWatch(const Ending& ending) : ending_(ending) {}

  bool ended() const override { return ending_.ended(); }
  void look() const override {
    ending_.look();
    if (Clock::now() < until_) return;
    throw Error(ErrorKind::timeout, "other ranks do not end their exchanges");
  }

 private:
  using Clock = std::chrono::steady_clock;

  const Ending& ending_;
  const Clock::time_point until_ = Clock::now() + closing_time;
};

/// While communicators start, which nothing else bounds: NCCL looks for ways to other ranks for as long as it takes.
class StartingWatch final : public Watch {
 public:
  StartingWatch(const Ending& ending, Control* control)
      : ending_(ending),
        until_(RunningClock::now() + (control != nullptr ? control->timeout() : Control::Clock::duration(longest))) {}

  bool ended() const override { return ending_.ended(); }
  void look() const override {
    ending_.look();
    if (RunningClock::now() < until_) return;
    throw Error(ErrorKind::timeout,
                "NCCL has not joined the ranks within the timeout (some cannot be reached, or hang): see "
                "NCCL_SOCKET_IFNAME and NCCL_DEBUG=WARN, or give a longer timeout");
  }

 private:
  static constexpr auto longest = std::chrono::hours(24 * 365);

  const RunningClock::Keeper keeps_time_;
  const Ending& ending_;
  const RunningClock::time_point until_;
};

}  // namespace

/// While somebody waits for a step: asks NCCL and the control channel, now and then, whether it can still succeed.
/// Peers are awaited from when the GPU has come to the exchange; before that it computes, which is progress.
class NcclTransport::StepWatch final : public Watch {
 public:
  using Clock = Control::Clock;

  /// `begun` passes just before the exchange.
  StepWatch(const NcclTransport& transport, LaneCommunicators& communicators, const Step& step,
            std::shared_ptr<const Mark> begun)
      : ending_(transport.ending_),
        control_(transport.control_),
        communicators_(communicators),
        lane_(step.lane),
        peers_(peers_of(step)),
        begun_(std::move(begun)),
        next_look_(Clock::now() + looking_interval) {}

  bool ended() const override { return ending_->ended(); }
  void look() const override {
    ending_->look();
    const std::scoped_lock lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (now < next_look_) return;
    next_look_ = now + looking_interval;
    if (control_ != nullptr && !peers_.empty()) look_at_peers(now);
    const std::string fault = communicators_.fault();
    if (fault.empty()) return;
    if (!fault_since_) fault_since_ = now;
    if (control_ != nullptr && now < *fault_since_ + verdict_time) return;
    throw Error(ErrorKind::peer, fmt::format("{} see the output of its peers: {}", fault, fmt::join(peers_, ", ")));
  }
  void over() const override {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(awaits_, false)) control_->arrived(lane_);
  }

 private:
  /// NCCL does not say which of its peers an exchange waits for, nor how far it is: one that takes longer than the
  /// timeout cannot be told from one that hangs.
  void look_at_peers(Clock::time_point now) const {
    if (!begun_at_ && begun_->passed()) begun_at_ = now;
    if (!begun_at_) return control_->check(peers_.front(), now);
    control_->awaiting(lane_, control_->check_any(peers_, *begun_at_));
    awaits_ = true;
  }

  const std::shared_ptr<const Ending> ending_;
  Control* const control_;
  LaneCommunicators& communicators_;
  const Lane lane_;
  const std::vector<Rank> peers_;
  const std::shared_ptr<const Mark> begun_;
  mutable std::mutex mutex_;  // guards what follows
  mutable Clock::time_point next_look_;
  mutable std::optional<Clock::time_point> begun_at_, fault_since_;
  mutable bool awaits_ = false;
};

/// An exchange, which has failed if it was with ranks that make other calls.
class NcclTransport::ExchangeEvent final : public StreamEvent {
 public:
  ExchangeEvent(std::shared_ptr<const Mark> mark, std::shared_ptr<const Watch> watch,
                std::shared_ptr<const Origin> origin, const Step& step, Rank rank,
                std::shared_ptr<const CallMarks::Arrived> arrived)
      : StreamEvent(std::move(mark), std::move(watch), std::move(origin), distattn::place_of(rank, step)),
        place_(distattn::place_of(rank, step)),
        rank_(rank),
        arrived_(std::move(arrived)) {}

  void wait() const override {
    StreamEvent::wait();
    if (arrived_ == nullptr) return;
    try {
      arrived_->compare(rank_);
    } catch (...) {
      rethrow_at(place_);
    }
  }

 private:
  const std::string place_;
  const Rank rank_;
  const std::shared_ptr<const CallMarks::Arrived> arrived_;
};

NcclTransport::NcclTransport(const Library& library, cuda::Driver& driver, Bootstrap& bootstrap, Lanes lanes)
    : rank_(bootstrap.rank()),
      size_(bootstrap.size()),
      takes_turns_(lanes == Lanes::both && !library.keeps_order),
      control_(bootstrap.control()),
      order_(lanes) {
  expect_gpus_of_their_own(driver, bootstrap);
  // Who reports a failure while communicators start must not find this half made, nor gone where one does not.
  if (control_ != nullptr) control_->on_failure([ending = ending_](const Error& error) { ending->end(error); });
  const StartingWatch starts(*ending_, control_);
  near_.emplace(library, driver, shared_id(library, bootstrap), rank_, size_, starts);
  if (lanes == Lanes::both) far_.emplace(library, driver, shared_id(library, bootstrap), rank_, size_, starts);
  on_failure(nullptr);
}

/// An abort could overtake the last messages, which other ranks still wait for.
NcclTransport::~NcclTransport() {
  const ClosingWatch watch(*ending_);
  if (near_->finalize(watch) && far_) far_->finalize(watch);
  end_lanes();
  if (control_ != nullptr) control_->on_failure(nullptr);
}

Event NcclTransport::submit(const Step& step, BufferTable& buffers, std::span<const Event> after) {
  try {
    LaneCommunicators& lane = communicators_of(step.lane);
    const auto origin = await_turn(step, buffers);
    wait_for_all(after, lane.stream());
    follow_last(lane.stream());
    const auto watch = std::make_shared<const StepWatch>(*this, lane, step, lane.stream().mark());
    const auto arrived = lane.issue(step, buffers, *watch);
    const auto event = std::make_shared<ExchangeEvent>(lane.stream().mark(), watch, origin, step, rank_, arrived);
    pass_turn(step, buffers, lane.stream());
    return Event(event);
  } catch (...) {
    return Event::failed(std::make_exception_ptr(error_at(rank_, step, std::current_exception())));
  }
}

std::shared_ptr<const Origin> NcclTransport::await_turn(const Step& step, const BufferTable& buffers) {
  std::unique_lock lock(mutex_);
  turn_.wait(lock, [&] { return ending_->ended() || order_.is_next(step, buffers); });
  ending_->look();
  if (order_.begins(buffers)) origin_ = present(communicators_of(step.lane).stream(), *ending_);
  return origin_;
}

void NcclTransport::follow_last(cuda::Stream& stream) {
  const std::scoped_lock lock(mutex_);
  if (last_ != nullptr) stream.wait_for(*last_);
}

void NcclTransport::pass_turn(const Step& step, const BufferTable& buffers, cuda::Stream& stream) {
  const std::scoped_lock lock(mutex_);
  if (takes_turns_) last_ = stream.mark();
  order_.pass(step, buffers);
  turn_.notify_all();
}

void NcclTransport::abort(const Error& error) noexcept {
  if (control_ != nullptr) control_->abort(error);
  end(error);
}

void NcclTransport::end(const Error& error) noexcept {
  {
    const std::scoped_lock lock(mutex_);
    ending_->end(error);
    turn_.notify_all();
  }
  end_lanes();
}

/// At once: each waits for the GPU, where another's kernel waits for other ranks until it is ended too.
void NcclTransport::end_lanes() noexcept {
  std::vector<Communicator::End> ends;
  for (std::optional<LaneCommunicators>* lane : {&near_, &far_}) {
    if (!*lane) continue;
    for (Communicator* communicator : (*lane)->all()) ends.push_back(communicator->end());
  }
  await_ends(ends);
}

void NcclTransport::computing(int number) noexcept {
  if (control_ != nullptr) control_->computing(number);
}

void NcclTransport::resting() noexcept {
  if (control_ != nullptr) control_->resting();
}

void NcclTransport::on_failure(std::function<void(const Error&)> listener) {
  if (control_ == nullptr) return;
  control_->on_failure([this, listener = std::move(listener)](const Error& error) {
    end(error);
    if (listener) listener(error);
  });
}

}  // namespace distattn::backends::nccl
