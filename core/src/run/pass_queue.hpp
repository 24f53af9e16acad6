#pragma once
/// The passes of one handle: each begins when those before it have ended, or stands behind them in the device's queue.

#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "distattn/execute.hpp"

namespace distattn {

/// Two kinds of passes are queued. What only has to be appended to the device's queue, the caller's thread appends, and
/// whoever asks or waits first sees how it ended. Any other pass is run by a thread that the first of them starts. Used
/// by one thread at a time; the events that it gives out, by any.
class PassQueue {
 public:
  PassQueue(Device& device, Transport& transport);
  /// Waits for all passes.
  ~PassQueue();
  PassQueue(const PassQueue&) = delete;
  PassQueue& operator=(const PassQueue&) = delete;

  /// `executor` must outlive the queue.
  Event queue(Executor& executor, const Bindings& bindings, const Event& after);
  /// By this thread, in its turn.
  const Timeline& run(Executor& executor, const Bindings& bindings);
  /// Throws the first failure of the passes that have ended.
  void check();
  /// Throws it once all have.
  void wait();

 private:
  class ThreadPass;
  class DevicePass;
  struct Standing;
  /// What the thread runs next.
  struct Job {
    std::shared_ptr<ThreadPass> pass;
    Executor* executor = nullptr;
    Bindings bindings;
    Event after;
    std::array<Event, 2> before;  // of other handles too
  };

  Event append(Executor& executor, const Bindings& bindings);
  Event hand_over(Executor& executor, const Bindings& bindings, const Event& after);
  bool can_follow(const Event& after) const;
  void start_thread();
  void serve();
  void run(const Job& job);

  Device& device_;
  Transport& transport_;
  const std::shared_ptr<Standing> standing_;
  Event last_;         // of all
  Event last_handed_;  // of those for the thread

  std::mutex mutex_;  // guards jobs_ and closing_
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool closing_ = false;
  std::thread thread_;
};

/// Returns when every pass on this device or transport that is queued so far has ended, well or not.
void await_passes(Device& device, Transport& transport);
void await_passes(Transport& transport);

}  // namespace distattn
