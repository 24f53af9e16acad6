#pragma once
/// Threads of several ranks on the cores of one node.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "event_queue.hpp"

namespace distattn {

/// Jobs of `threads` threads each share `cores` evenly: a job that needs s seconds alone has ended when the cores have
/// given it that much. One virtual clock, which runs slower the more jobs there are, serves all jobs.
class Cores {
 public:
  Cores(std::size_t node, int cores, int threads) : node_(node), cores_(cores), threads_(threads) {}

  void add(std::size_t step, double seconds, double now, EventQueue& queue) {
    advance(now);
    jobs_.push({clock_ + seconds, step});
    announce(queue);
  }

  /// Whether `completion` still stands: a job added since then has changed when the next one ends.
  bool current(const Completion& completion) const { return completion.version == version_; }

  /// The step that ends now.
  std::size_t take(double now, EventQueue& queue) {
    advance(now);
    const std::size_t step = jobs_.top().second;
    clock_ = std::max(clock_, jobs_.top().first);
    jobs_.pop();
    announce(queue);
    return step;
  }

 private:
  double speed() const {
    return std::min(1.0, static_cast<double>(cores_) / (threads_ * static_cast<double>(jobs_.size())));
  }
  void advance(double now) {
    if (!jobs_.empty()) clock_ += (now - last_) * speed();
    last_ = now;
  }
  void announce(EventQueue& queue) {
    ++version_;
    if (jobs_.empty()) return;
    const double left = std::max(0.0, jobs_.top().first - clock_) / speed();
    queue.push({last_ + left, Completion::Kind::cores, node_, version_});
  }

  using Job = std::pair<double, std::size_t>;  // the clock when it ends, its step
  std::size_t node_;
  int cores_, threads_;
  double clock_ = 0, last_ = 0;
  std::size_t version_ = 0;
  std::priority_queue<Job, std::vector<Job>, std::greater<>> jobs_;
};

}  // namespace distattn
