#pragma once
/// Events: completions of asynchronous work, which succeeds or fails.

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#pragma GCC visibility push(default)
namespace distattn {

/// A shared handle to the completion of submitted work. A default-constructed event is complete. Thread-safe.
class Event {
 public:
  using Clock = std::chrono::steady_clock;

  /// Implemented by a backend for its own kind of completion (a CUDA event, a UCX request).
  class State {
   public:
    virtual ~State() = default;
    virtual bool done() const = 0;
    /// Returns when the work has ended; rethrows its failure.
    virtual void wait() const = 0;
    /// Returns when the work ended, on the host's steady clock. Called only after the work's run has succeeded.
    virtual Clock::time_point ended_at() const = 0;
    /// If all of the work is in a device's queue, returns the event of the last item there, so that another queue can
    /// wait for it without the host. Otherwise returns an event without state.
    virtual Event queued() const;
  };

  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// Returns an event that has already failed: wait() throws `error`.
  static Event failed(std::exception_ptr error);

  bool done() const { return state_ == nullptr || state_->done(); }
  void wait() const {
    if (state_ != nullptr) state_->wait();
  }
  /// For the backend that made the event, to order other work after it without waiting; null: complete.
  const State* state() const { return state_.get(); }

 private:
  std::shared_ptr<State> state_;
};

inline Event Event::State::queued() const { return {}; }

/// The passes that share a device or a transport, in the order of their calls. Thread-safe.
class PassOrder {
 public:
  /// Makes `pass` the last one and returns the one before it.
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
