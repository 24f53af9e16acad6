#include "distattn/event.hpp"

namespace distattn {
namespace {

class Failure final : public Event::State {
 public:
  explicit Failure(std::exception_ptr error) : error_(std::move(error)), at_(Event::Clock::now()) {}
  bool done() const override { return true; }
  void wait() const override { std::rethrow_exception(error_); }
  Event::Clock::time_point ended_at() const override { return at_; }

 private:
  std::exception_ptr error_;
  Event::Clock::time_point at_;
};

}  // namespace

Event Event::failed(std::exception_ptr error) { return Event(std::make_shared<Failure>(std::move(error))); }

}  // namespace distattn
