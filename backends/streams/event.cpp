#include "backends/streams/event.hpp"

#include <thread>

#include <fmt/core.h>

namespace distattn::backends {

void Ending::end(const Error& error) noexcept {
  const std::scoped_lock lock(mutex_);
  if (error_) return;
  error_ = error;
  ended_.store(true, std::memory_order_release);
}

void Ending::look() const {
  if (!ended()) return;
  const std::scoped_lock lock(mutex_);
  throw Error(error_->kind(), fmt::format("ended ({})", error_->what()));
}

bool StreamEvent::done() const {
  try {
    return watch_->ended() || mark_->passed();
  } catch (const Error&) {
    return true;  // wait() throws it
  }
}

void StreamEvent::wait() const {
  try {
    wait_on_host(*mark_, *watch_);
  } catch (...) {
    rethrow_at(place_);
  }
}

void TensorEvent::wait() const {
  try {
    StreamEvent::wait();
  } catch (...) {
    stream_.finish();
    throw;
  }
  if (begin_ != nullptr) begin_->at = Event::Clock::now() - since(*begin_);
}

Event::Clock::duration StreamEvent::since(const Origin& origin) const {
  const std::chrono::duration<double> seconds(mark_->seconds_since(*origin.mark));
  return std::chrono::duration_cast<Event::Clock::duration>(seconds);
}

void wait_for_all(std::span<const Event> events, Stream& stream) {
  for (const Event& event : events) {
    if (const auto* own = dynamic_cast<const StreamEvent*>(event.state())) {
      if (event.done()) event.wait();  // throws if it failed
      if (stream.wait_for(own->mark())) continue;
    }
    event.wait();
  }
}

bool follow(const Event& event, Stream& stream) {
  if (event.done()) return true;
  const Event queued = event.state()->queued();
  for (const Event* each : {&event, &queued}) {
    const auto* const own = dynamic_cast<const StreamEvent*>(each->state());
    if (own != nullptr) return stream.wait_for(own->mark());
  }
  return false;
}

void wait_on_host(const Mark& mark, const Watch& watch) {
  constexpr int busy_rounds = 200;
  constexpr std::chrono::microseconds pause(20);
  for (int round = 0;; ++round) {
    watch.look();
    if (mark.passed()) return watch.over();
    if (round < busy_rounds) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(pause);
    }
  }
}

std::shared_ptr<const Origin> present(Stream& stream, const Watch& watch) {
  const auto origin = std::make_shared<Origin>();
  origin->mark = stream.mark();
  wait_on_host(*origin->mark, watch);
  origin->at = Event::Clock::now();
  return origin;
}

void rethrow_at(const std::string& place) {
  const Error error = as_error(std::current_exception());
  throw Error(error.kind(), fmt::format("{}: {}", place, error.what()));
}

}  // namespace distattn::backends
