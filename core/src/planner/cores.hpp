#pragma once
/// Threads of several ranks on the cores of one node.

#include <algorithm>
#include <cstddef>
#include <deque>
#include <limits>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/src/planner/event_queue.hpp"

namespace distattn {

/// Cores as an operating system shares them: a thread keeps its core until it has nothing to do or its time slice is
/// over and another one waits; those that wait have their turns in the order in which they came. Where a rank's work
/// is shorter than a slice, that is far from an even share: of three ranks on two cores, one begins when another ends.
class Cores {
 public:
  Cores(std::size_t node, int cores) : node_(node), cores_(static_cast<std::size_t>(cores)) {}

  /// `threads` threads with `seconds` of work each, after which `step` has ended. `owner` is whose threads they are:
  /// who has just ended something and goes on at once keeps the core.
  void add(std::size_t step, std::size_t owner, int threads, double seconds, double now, EventQueue& queue) {
    advance(now);
    open_[step] = threads;
    slice_ = std::max(slice_, seconds / most_slices);
    for (int i = 0; i < threads; ++i) waiting_.push_back({step, owner, seconds, slice_});
    for (Core& core : cores_) {
      if (core.state != State::held || core.task.owner != owner) continue;
      waiting_.back().slice_left = core.task.slice_left;
      core = {State::running, waiting_.back()};
      waiting_.pop_back();
      break;
    }
    dispatch(now, queue);
  }

  /// Whether `completion` still stands: a task added since then has changed what comes next.
  bool current(const Completion& completion) const { return completion.version == version_; }

  /// The step that ends now; nothing when only a time slice does. Whoever had the core of what ended may go on with it
  /// until release().
  std::optional<std::size_t> take(double now) {
    advance(now);
    Core& core = *next_core();
    if (core.task.left > core.task.slice_left) {
      core.task.slice_left = slice_;
      waiting_.push_back(core.task);
      core.state = State::idle;
      return {};
    }
    core.state = State::held;
    const auto open = open_.find(core.task.step);
    if (--open->second > 0) return {};
    open_.erase(open);
    return core.task.step;
  }

  /// Gives a core that nobody goes on with to who waits.
  void release(double now, EventQueue& queue) {
    for (Core& core : cores_) {
      if (core.state == State::held) core.state = State::idle;
    }
    dispatch(now, queue);
  }

 private:
  static constexpr double most_slices = 16;  // of one task: what is much longer than a slice is shared evenly anyway

  struct Task {
    std::size_t step = 0, owner = 0;
    double left = 0, slice_left = 0;  // seconds
  };
  enum class State { idle, running, held };
  struct Core {
    State state = State::idle;
    Task task;
  };

  double next_event(const Core& core) const {
    if (core.state != State::running) return std::numeric_limits<double>::infinity();
    return waiting_.empty() ? core.task.left : std::min(core.task.left, core.task.slice_left);
  }
  std::vector<Core>::iterator next_core() {
    return std::min_element(cores_.begin(), cores_.end(),
                            [&](const Core& a, const Core& b) { return next_event(a) < next_event(b); });
  }
  void advance(double now) {
    for (Core& core : cores_) {
      if (core.state != State::running) continue;
      core.task.left -= now - last_;
      core.task.slice_left -= now - last_;
      while (waiting_.empty() && core.task.slice_left <= 0) core.task.slice_left += slice_;
    }
    last_ = now;
  }
  void dispatch(double now, EventQueue& queue) {
    for (Core& core : cores_) {
      if (waiting_.empty()) break;
      if (core.state != State::idle) continue;
      core = {State::running, waiting_.front()};
      waiting_.pop_front();
    }
    ++version_;
    const double left = next_event(*next_core());
    if (left < std::numeric_limits<double>::infinity()) {
      queue.push({now + std::max(0.0, left), Completion::Kind::cores, node_, version_});
    }
  }

  std::size_t node_;
  std::vector<Core> cores_;
  std::deque<Task> waiting_;
  std::unordered_map<std::size_t, int> open_;  // by step: threads that have not ended
  double slice_ = 4e-3;                        // Linux ends one at a tick, of which there are mostly 250 a second
  double last_ = 0;
  std::size_t version_ = 0;
};

}  // namespace distattn
