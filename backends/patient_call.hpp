#pragma once
/// Calls of libraries and file systems that may never return, and are then left to themselves.

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "backends/running_clock.hpp"
#include "distattn/error.hpp"

namespace distattn::backends {

/// Runs `body` on a thread of its own that nobody waits for; what it uses must live as long as it may run. Throws
/// Error(environment) when the system gives no thread for `purpose`.
void run_beside(const char* purpose, std::function<void()> body);

/// A call on a thread of its own, which can be waited for again and again.
template <class Result>
class PatientCall {
 public:
  /// `call` must own what it uses: it goes on where nobody waits any more.
  PatientCall(const char* purpose, std::function<Result()> call) {
    auto promise = std::make_shared<std::promise<Result>>();
    result_ = promise->get_future();
    run_beside(purpose, [call = std::move(call), promise]() mutable {
      try {
        promise->set_value(call());
      } catch (...) {
        promise->set_exception(std::current_exception());
      }
    });
  }

  /// Whether it returned before the deadline. `look`, if given, is called now and then and may throw.
  bool returns_before(RunningClock::time_point deadline, const std::function<void()>& look = {}) const {
    constexpr auto interval = std::chrono::milliseconds(20);
    while (result_.wait_for(interval) != std::future_status::ready) {
      if (look) look();
      if (RunningClock::now() >= deadline) return false;
    }
    return true;
  }
  /// What it returned, or throws what it threw; once.
  Result take() { return result_.get(); }

 private:
  std::future<Result> result_;
};

/// The result of `call`, for which this thread waits until the deadline. Throws `late()` then, and what `look` throws
/// before.
template <class Result>
Result call_before(RunningClock::time_point deadline, const char* purpose, std::function<Result()> call,
                   const std::function<Error()>& late, const std::function<void()>& look = {}) {
  constexpr auto farewell =
      std::chrono::milliseconds(500);  // for a call that is about to return, and leaves nothing then
  PatientCall<Result> patient(purpose, std::move(call));
  try {
    if (!patient.returns_before(deadline, look)) throw Error(late());
  } catch (...) {
    patient.returns_before(RunningClock::now() + farewell);
    throw;
  }
  return patient.take();
}

}  // namespace distattn::backends
