#include "core/src/run/pass_queue.hpp"

#include <atomic>
#include <utility>

#include <fmt/core.h>

#include "distattn/error.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/thread.hpp"

namespace distattn {
namespace {

/// Returns when it has completed; its failure is told to those who asked for it.
void await_end(const Event& event) {
  try {
    event.wait();
  } catch (...) {
    // Not this one's.
  }
}

}  // namespace

/// Passes of one handle that its caller appended to the device's queue, in order, and the first failure of any pass.
/// Events share it, and may outlive the handle.
struct PassQueue::Standing {
  /// With `ending` held.
  void end_first();
  std::shared_ptr<DevicePass> first() const {
    const std::scoped_lock lock(mutex);
    return passes.empty() ? nullptr : passes.front();
  }
  void append(std::shared_ptr<DevicePass> pass) {
    const std::scoped_lock lock(mutex);
    passes.push_back(std::move(pass));
  }
  void fail(std::exception_ptr error) {
    const std::scoped_lock lock(mutex);
    if (!failure) failure = std::move(error);
  }
  std::exception_ptr failed() const {
    const std::scoped_lock lock(mutex);
    return failure;
  }

  std::mutex ending;         // held by whoever waits for the first, and takes it away
  mutable std::mutex mutex;  // guards what follows
  std::deque<std::shared_ptr<DevicePass>> passes;
  std::exception_ptr failure;
};

/// Stands in the device's queue. Those before it end first, so that a failure is that of the pass which met it.
class PassQueue::DevicePass final : public Event::State {
 public:
  DevicePass(std::shared_ptr<Standing> standing, Event work) : standing_(std::move(standing)), work_(std::move(work)) {}

  bool done() const override {
    if (over_.load(std::memory_order_acquire)) return true;
    const std::unique_lock lock(standing_->ending, std::try_to_lock);
    if (!lock.owns_lock()) return false;  // whoever waits will say so
    while (!over_ && standing_->first()->work_.done()) standing_->end_first();
    return over_;
  }
  void wait() const override {
    if (!over_.load(std::memory_order_acquire)) {
      const std::scoped_lock lock(standing_->ending);
      while (!over_) standing_->end_first();
    }
    if (failure_) std::rethrow_exception(failure_);
  }
  Event::Clock::time_point ended_at() const override { return ended_at_; }
  Event queued() const override {
    const std::scoped_lock lock(mutex_);
    return work_.state() != nullptr ? work_.state()->queued() : Event();
  }

 private:
  friend struct Standing;
  friend class PassQueue;
  const std::shared_ptr<Standing> standing_;
  mutable std::mutex mutex_;  // guards work_, which stays as it is while `ending` is held by another
  Event work_;
  // Written before over_ is.
  std::exception_ptr failure_;
  Event::Clock::time_point ended_at_{};
  std::atomic<bool> over_{false};
};

void PassQueue::Standing::end_first() {
  const std::shared_ptr<DevicePass> ends = first();
  try {
    ends->work_.wait();
  } catch (...) {
    fail(std::current_exception());
  }
  ends->failure_ = failed();
  ends->ended_at_ = Event::Clock::now();
  {
    const std::scoped_lock lock(ends->mutex_);
    ends->work_ = Event();  // the executor may end now
  }
  ends->over_.store(true, std::memory_order_release);
  const std::scoped_lock lock(mutex);
  passes.pop_front();
}

/// Run by the thread.
class PassQueue::ThreadPass final : public Event::State {
 public:
  bool done() const override {
    const std::scoped_lock lock(mutex_);
    return over_;
  }
  void wait() const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return over_; });
    if (failure_) std::rethrow_exception(failure_);
  }
  Event::Clock::time_point ended_at() const override {
    const std::scoped_lock lock(mutex_);
    return ended_at_;
  }

  /// Returns when all of it stands in the device's queue, or it has ended.
  void await_standing() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stands_; });
  }
  void stand() {
    const std::scoped_lock lock(mutex_);
    stands_ = true;
    changed_.notify_all();
  }
  void end(std::exception_ptr failure) {
    const std::scoped_lock lock(mutex_);
    failure_ = std::move(failure);
    ended_at_ = Event::Clock::now();
    stands_ = over_ = true;
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool stands_ = false, over_ = false;
  std::exception_ptr failure_;
  Event::Clock::time_point ended_at_{};
};

PassQueue::PassQueue(Device& device, Transport& transport)
    : device_(device), transport_(transport), standing_(std::make_shared<Standing>()) {}

PassQueue::~PassQueue() {
  await_end(last_);
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

Event PassQueue::queue(Executor& executor, const Bindings& bindings, const Event& after) {
  check();
  executor.check(bindings);
  const bool appends = executor.can_submit(bindings) && can_follow(after);
  last_ = appends ? append(executor, bindings) : hand_over(executor, bindings, after);
  return last_;
}

/// Whether what is appended to the device's queue from here on begins after `after`, and in its turn.
bool PassQueue::can_follow(const Event& after) const {
  const auto follows = [&](const Event& event) { return event.done() || device_.follow(event); };
  if (!last_handed_.done() || !follows(device_.order().last()) || !follows(after)) return false;
  if (!after.done()) return true;
  try {
    after.wait();
    return true;
  } catch (...) {
    return false;  // the thread says so
  }
}

Event PassQueue::append(Executor& executor, const Bindings& bindings) {
  const auto pass = std::make_shared<DevicePass>(standing_, executor.submit(bindings));
  standing_->append(pass);
  device_.order().append(Event(pass));
  return Event(pass);
}

Event PassQueue::hand_over(Executor& executor, const Bindings& bindings, const Event& after) {
  start_thread();
  const auto pass = std::make_shared<ThreadPass>();
  last_handed_ = Event(pass);
  {
    const std::scoped_lock lock(mutex_);
    jobs_.push_back({pass,
                     &executor,
                     bindings,
                     after,
                     {device_.order().append(last_handed_), transport_.order().append(last_handed_)}});
  }
  changed_.notify_one();
  if (device_.queue() == WorkQueue::callers) pass->await_standing();
  return last_handed_;
}

const Timeline& PassQueue::run(Executor& executor, const Bindings& bindings) {
  await_passes(device_, transport_);
  check();
  executor.check(bindings);
  try {
    return executor.run(bindings);
  } catch (...) {
    standing_->fail(std::current_exception());
    throw;
  }
}

void PassQueue::check() {
  if (const std::unique_lock lock(standing_->ending, std::try_to_lock); lock.owns_lock()) {
    for (auto first = standing_->first(); first && first->work_.done(); first = standing_->first()) {
      standing_->end_first();
    }
  }
  if (const std::exception_ptr failure = standing_->failed()) std::rethrow_exception(failure);
}

void PassQueue::wait() {
  await_end(last_);
  check();
}

void PassQueue::start_thread() {
  if (thread_.joinable()) return;
  try {
    thread_ = std::thread([this] { serve(); });
  } catch (const std::system_error& refused) {
    throw no_thread(fmt::format("rank {}", transport_.rank()), "run queued passes", refused);
  }
}

void PassQueue::serve() {
  leave_openmp_place();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closing_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = std::exchange(jobs_.front(), {});
    jobs_.pop_front();
    lock.unlock();
    run(job);
    lock.lock();
  }
}

void PassQueue::run(const Job& job) {
  for (const Event& event : job.before) await_end(event);
  if (!standing_->failed()) {
    try {
      job.executor->run(job.bindings, job.after, [&] { job.pass->stand(); });
    } catch (...) {
      standing_->fail(std::current_exception());
    }
  }
  job.pass->end(standing_->failed());
}

void await_passes(Device& device, Transport& transport) {
  await_end(device.order().last());
  await_passes(transport);
}

void await_passes(Transport& transport) { await_end(transport.order().last()); }

}  // namespace distattn
