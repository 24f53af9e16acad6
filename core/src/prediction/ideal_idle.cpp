#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "distattn/index.hpp"
#include "distattn/simulate.hpp"

namespace distattn {

namespace {

/// One rank on the step-synchronous clock of ideal_idle.
class Clock {
 public:
  explicit Clock(const ProgramSketch& sketch) : sketch_(&sketch), order_(sketch.steps.size()) {
    std::iota(order_.begin(), order_.end(), std::uint32_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&sketch](std::uint32_t a, std::uint32_t b) {
      return sketch.steps[a].number < sketch.steps[b].number;
    });
  }

  double start() const { return start_; }
  double busy() const { return busy_; }
  int steps() const { return order_.empty() ? 0 : sketch_->steps[order_.back()].number + 1; }

  /// The end of step `number`, given when every rank's began. Numbers come in order.
  template <class StartOf>
  void advance(int number, StartOf start_of) {
    double work = 0, arrived = start_;
    for (; next_ < order_.size() && sketch_->steps[order_[next_]].number == number; ++next_) {
      const std::size_t step = order_[next_];
      for (const ProgramSketch::Work& tiles : sketch_->works_of(step)) work += tiles.pairs;
      double arrival = 0;
      for (const Rank sender : sketch_->receives_of(step)) arrival = std::max(arrival, start_of(sender));
      pending_.push_back({sketch_->steps[step].due, arrival});
    }
    std::erase_if(pending_, [&arrived, number](const Pending& message) {
      if (message.due > number) return false;
      arrived = std::max(arrived, message.arrival);
      return true;
    });
    busy_ += work;
    end_ = std::max(start_ + work, arrived);
  }
  void commit() { start_ = end_; }

 private:
  struct Pending {
    int due;
    double arrival;
  };
  const ProgramSketch* sketch_;
  std::vector<std::uint32_t> order_;
  std::vector<Pending> pending_;
  std::size_t next_ = 0;
  double start_ = 0, end_ = 0, busy_ = 0;
};

}  // namespace

double ideal_idle(std::span<const ProgramSketch> ranks) {
  std::vector<Clock> clocks(ranks.begin(), ranks.end());
  int steps = 0;
  for (const Clock& clock : clocks) steps = std::max(steps, clock.steps());
  for (int number = 0; number < steps; ++number) {
    for (Clock& clock : clocks) {
      clock.advance(number, [&clocks](Rank rank) { return clocks[index(rank)].start(); });
    }
    for (Clock& clock : clocks) clock.commit();
  }
  double seconds = 0, busy = 0;
  for (const Clock& clock : clocks) {
    seconds = std::max(seconds, clock.start());
    busy += clock.busy();
  }
  return seconds > 0 ? std::max(0.0, 1 - busy / (static_cast<double>(ranks.size()) * seconds)) : 0.0;
}

}  // namespace distattn
