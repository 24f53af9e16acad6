#pragma once
/// Threads of several ranks on the cores of one node.

#include <algorithm>
#include <cstddef>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "core/src/planner/event_queue.hpp"

namespace distattn {

/// Threads take turns: one that becomes ready waits for its place behind those that wait already, and one that others
/// wait for gives up its core when its turn is over. Steps that are shorter than a turn therefore run to their end one
/// after the other, as on an operating system, and do not slow each other down evenly.
class Cores {
 public:
  /// What a thread may compute while others wait: between the slice of Linux's scheduler (2.8 ms with few cores) and
  /// its tick (4 ms).
  static constexpr double turn_s = 3e-3;

  Cores(std::size_t node, int cores) : node_(node), cores_(static_cast<std::size_t>(cores)) {}

  /// A job for `threads`, each of which needs a core for `seconds`; `step` is what ends with it.
  void add(std::size_t step, int threads, double seconds, double now, EventQueue& queue) {
    const std::size_t job = jobs_.size();
    jobs_.push_back({step, threads});
    for (int thread = 0; thread < threads; ++thread) waiting_.push_back({job, seconds});
    start_waiting(now, queue);
    if (!waiting_.empty()) end_turns(now, queue);
  }

  /// The step that ends with `completion`; none where a turn does, or where it no longer stands.
  std::optional<std::size_t> take(const Completion& completion, EventQueue& queue) {
    const auto found = std::find_if(cores_.begin(), cores_.end(),
                                    [&](const Core& core) { return core.busy && core.version == completion.version; });
    if (found == cores_.end()) return {};
    Thread thread = found->thread;
    found->busy = false;
    thread.seconds -= found->turn_s;
    std::optional<std::size_t> ended;
    if (found->cut) {
      waiting_.push_back(thread);
    } else if (--jobs_[thread.job].open == 0) {
      ended = jobs_[thread.job].step;
    }
    start_waiting(completion.time, queue);
    return ended;
  }

 private:
  struct Job {
    std::size_t step;
    int open;  // threads that have not ended
  };
  struct Thread {
    std::size_t job;
    double seconds;  // left
  };
  struct Core {
    bool busy = false, cut = false;  // cut: the turn ends before its thread
    Thread thread{};
    double began = 0, turn_s = 0;
    std::size_t version = 0;
  };

  void announce(Core& core, EventQueue& queue) {
    core.version = ++versions_;
    queue.push({core.began + core.turn_s, Completion::Kind::cores, node_, core.version});
  }

  void start_waiting(double now, EventQueue& queue) {
    for (Core& core : cores_) {
      if (waiting_.empty()) return;
      if (core.busy) continue;
      const Thread thread = waiting_.front();
      waiting_.pop_front();
      const bool cut = !waiting_.empty() && thread.seconds > turn_s;
      core = {true, cut, thread, now, cut ? turn_s : thread.seconds, 0};
      announce(core, queue);
    }
  }

  /// Threads that had nobody waiting for them now have.
  void end_turns(double now, EventQueue& queue) {
    for (Core& core : cores_) {
      const double until = std::max(now, core.began + turn_s);
      if (core.cut || core.began + core.turn_s <= until) continue;
      core.cut = true;
      core.turn_s = until - core.began;
      announce(core, queue);
    }
  }

  std::size_t node_;
  std::vector<Core> cores_;
  std::vector<Job> jobs_;
  std::deque<Thread> waiting_;
  std::size_t versions_ = 0;
};

}  // namespace distattn
