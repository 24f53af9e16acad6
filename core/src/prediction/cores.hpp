#pragma once
/// Threads of several ranks on the cores of one node.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <queue>
#include <tuple>
#include <vector>

#include "core/src/prediction/event_queue.hpp"

namespace distattn {

/// Jobs share `cores` evenly, thread by thread: a job that needs s seconds alone has ended when the cores have given it
/// that much. One virtual clock, which runs slower the more threads there are, serves all jobs.
class Cores {
 public:
  Cores(std::size_t node, int cores) : node_(node), cores_(cores) {}

  /// `step` is what ends with the job.
  void add(std::size_t step, int threads, double seconds, double now, EventQueue& queue) {
    advance(now);
    jobs_.push({clock_ + seconds, step, threads});
    threads_ += threads;
    announce(queue);
  }

  /// Whether `completion` still stands: a job added since then has changed when the next one ends.
  bool current(const Completion& completion) const { return completion.version == version_; }

  /// The step that ends now.
  std::size_t take(double now, EventQueue& queue) {
    advance(now);
    const Job job = jobs_.top();
    clock_ = std::max(clock_, job.end);
    jobs_.pop();
    threads_ -= job.threads;
    announce(queue);
    return job.step;
  }

 private:
  struct Job {
    double end;  // on the clock
    std::size_t step;
    int threads;
    friend bool operator>(const Job& a, const Job& b) { return std::tie(a.end, a.step) > std::tie(b.end, b.step); }
  };

  double speed() const { return std::min(1.0, static_cast<double>(cores_) / threads_); }
  void advance(double now) {
    if (!jobs_.empty()) clock_ += (now - last_) * speed();
    last_ = now;
  }
  void announce(EventQueue& queue) {
    ++version_;
    if (jobs_.empty()) return;
    const double left = std::max(0.0, jobs_.top().end - clock_) / speed();
    queue.push({last_ + left, Completion::Kind::cores, node_, version_});
  }

  std::size_t node_;
  int cores_, threads_ = 0;
  double clock_ = 0, last_ = 0;
  std::size_t version_ = 0;
  std::priority_queue<Job, std::vector<Job>, std::greater<>> jobs_;
};

}  // namespace distattn
