#include "backends/running_clock.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "distattn/thread.hpp"

namespace distattn::backends {
namespace {

using Steady = std::chrono::steady_clock;

constexpr auto tick = std::chrono::milliseconds(50);
constexpr auto longest_delay = std::chrono::milliseconds(250);  // a busy machine may let a thread wait that long
constexpr std::size_t most_stops = 256;                         // that are remembered one by one

struct Stop {
  Steady::time_point begin, end;  // the clock stands still between them
  Steady::duration missed_before;
};

class Watchman {
 public:
  static Watchman& of_process() {
    static auto* const watchman = new Watchman;  // never destroyed: threads may outlive main's statics
    return *watchman;
  }

  RunningClock::time_point now() {
    const std::scoped_lock lock(mutex_);
    const auto seen = Steady::now();
    see(seen);
    return RunningClock::time_point(seen.time_since_epoch() - missed_);
  }

  RunningClock::time_point at(Steady::time_point moment) {
    const std::scoped_lock lock(mutex_);
    see(Steady::now());
    auto missed = missed_;
    auto lived = moment;
    for (auto stop = stops_.rbegin(); stop != stops_.rend() && stop->end > moment; ++stop) {
      missed = stop->missed_before;
      lived = std::min(moment, stop->begin);
    }
    return RunningClock::time_point(lived.time_since_epoch() - missed);
  }

  void keep() {
    const std::scoped_lock life(life_);
    if (keepers_ == 0) begin();
    ++keepers_;
  }
  void let_go() {
    const std::scoped_lock life(life_);
    if (--keepers_ > 0) return;
    thread_ = std::jthread();
    const std::scoped_lock lock(mutex_);
    seen_.reset();
  }

 private:
  void begin() {
    {
      const std::scoped_lock lock(mutex_);
      seen_ = Steady::now();
    }
    try {
      thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
    } catch (const std::system_error& refused) {
      throw no_thread("a rank", "notice that it was stopped", refused);
    }
  }

  void watch(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      see(Steady::now());
      ended_.wait_for(lock, stop, tick, [] { return false; });
    }
  }

  /// With mutex_ held. Whichever thread runs first after a stop finds it out.
  void see(Steady::time_point now) {
    if (!seen_ || now <= *seen_) return;
    if (now - *seen_ > longest_delay) {
      stops_.push_back({*seen_ + tick, now, missed_});
      missed_ += now - *seen_ - tick;
      if (stops_.size() > most_stops) stops_.pop_front();
    }
    seen_ = now;
  }

  std::mutex life_;  // guards keepers_ and thread_
  int keepers_ = 0;

  std::mutex mutex_;  // guards what follows
  std::condition_variable_any ended_;
  std::optional<Steady::time_point> seen_;  // nothing: nobody watches
  Steady::duration missed_{};
  std::deque<Stop> stops_;

  std::jthread thread_;  // last: it uses the others
};

}  // namespace

RunningClock::time_point RunningClock::now() { return Watchman::of_process().now(); }
RunningClock::time_point RunningClock::at(std::chrono::steady_clock::time_point moment) {
  return Watchman::of_process().at(moment);
}

RunningClock::Keeper::Keeper() { Watchman::of_process().keep(); }
RunningClock::Keeper::~Keeper() { Watchman::of_process().let_go(); }

}  // namespace distattn::backends
