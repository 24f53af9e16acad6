#pragma once
/// The one word for asynchrony: something that will have happened, or failed.

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#pragma GCC visibility push(default)
namespace distattn {

/// A shared handle to the completion of submitted work. Default-constructed: already complete. Thread-safe.
class Event {
 public:
  using Clock = std::chrono::steady_clock;

  /// What a backend implements for completions of its own kind (a CUDA event, a UCX request).
  class State {
   public:
    virtual ~State() = default;
    virtual bool done() const = 0;
    /// Returns when the work has ended; rethrows its failure.
    virtual void wait() const = 0;
    /// When the work ended, on the host's steady clock; asked once the run that it is part of has ended well.
    virtual Clock::time_point ended_at() const = 0;
    /// The event of the last of its work, where all of that stands in a device's queue: another queue can wait for it
    /// without the host. Otherwise one that has no state.
    virtual Event queued() const;
  };

  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// An event that has already failed: wait() throws `error`.
  static Event failed(std::exception_ptr error);

  bool done() const { return state_ == nullptr || state_->done(); }
  void wait() const {
    if (state_ != nullptr) state_->wait();
  }
  /// For the backend that made the event and wants to order on it without waiting; null when complete.
  const State* state() const { return state_.get(); }

 private:
  std::shared_ptr<State> state_;
};

inline Event Event::State::queued() const { return {}; }

/// Passes that share something, in the order of their calls. Thread-safe.
class PassOrder {
 public:
  /// `pass` is the last one from here on. Returns the one before it.
  Event append(Event pass) {
    const std::scoped_lock lock(mutex_);
    return std::exchange(last_, std::move(pass));
  }
  Event last() const {
    const std::scoped_lock lock(mutex_);
    return last_;
  }

 private:
  mutable std::mutex mutex_;
  Event last_;
};

}  // namespace distattn
#pragma GCC visibility pop
