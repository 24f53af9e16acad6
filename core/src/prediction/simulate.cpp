#include "distattn/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/src/prediction/cores.hpp"
#include "core/src/prediction/described.hpp"
#include "core/src/prediction/event_queue.hpp"
#include "core/src/prediction/launch_times.hpp"
#include "core/src/prediction/network.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

std::vector<std::size_t> first_steps(std::span<const ProgramSketch> ranks) {
  std::vector<std::size_t> first;
  std::size_t steps = 0;
  for (const ProgramSketch& sketch : ranks) {
    first.push_back(steps);
    steps += sketch.steps.size();
  }
  first.push_back(steps);
  return first;
}

/// Every rank's lanes run their steps in order; a step begins when its lane is free and what it comes after has ended.
class Simulation {
 public:
  Simulation(const Outline& outline, std::span<const ProgramSketch> ranks, Machine machine, int threads)
      : ranks_(ranks),
        machine_(std::move(machine)),
        threads_(threads),
        first_(first_steps(ranks)),
        network_(ranks, std::span(first_).first(ranks.size()), machine_),
        launches_(outline.sharding.problem, outline.pass, machine_, static_cast<int>(ranks.size())),
        spans_(first_.back()),
        done_(first_.back(), false),
        begun_(first_.back(), false),
        next_in_lane_(first_.back(), none),
        heads_(ranks.size()),
        copies_(machine_.cores > 0 ? network_.message_count() : 0, NextCopy{0, 0, none}) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      open_.push_back(ranks[r].steps.size());
      line_up(r);
    }
    for (std::size_t node = 0; machine_.cores > 0 && node < index(machine_.nodes); ++node) {
      cores_.emplace_back(node, machine_.cores);
    }
  }

  Timeline run() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) work(r, load_of(r), threads_, packing_seconds(ranks_[r].load), 0);
    double now = 0;
    while (!queue_.empty()) {
      const Completion next = queue_.top();
      queue_.pop();
      std::size_t number = next.number;
      if (next.kind == Completion::Kind::cores) {
        Cores& cores = cores_[next.number];
        if (!cores.current(next)) continue;
        number = cores.take(next.time, queue_);
      }
      now = next.time;
      end(number, now);
    }
    DISTATTN_EXPECT(std::all_of(open_.begin(), open_.end(), [](std::size_t open) { return open == 0; }));
    Timeline timeline;
    timeline.seconds = now;
    timeline.spans = std::move(spans_);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const auto begin = timeline.spans.begin();
      std::stable_sort(begin + static_cast<std::ptrdiff_t>(first_[r]),
                       begin + static_cast<std::ptrdiff_t>(first_[r + 1]),
                       [](const Span& a, const Span& b) { return a.start_s < b.start_s; });
    }
    return timeline;
  }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;
  /// What a job is for: a step by its global number; then a rank's loading and storing of its tensors; then the copy of
  /// a message.
  std::size_t load_of(std::size_t r) const { return spans_.size() + r; }
  std::size_t store_of(std::size_t r) const { return load_of(ranks_.size()) + r; }
  std::size_t copy_of(std::uint32_t message) const { return store_of(ranks_.size()) + message; }

  /// What the lane that copies a message copies after it.
  struct NextCopy {
    std::size_t rank;  ///< whose lane
    double seconds;    ///< of the message itself
    std::uint32_t next;
  };

  using Heads = std::array<std::uint32_t, lane_count>;

  void line_up(std::size_t r) {
    heads_[r].fill(none);
    Heads last;
    last.fill(none);
    for (std::size_t s = 0; s < ranks_[r].steps.size(); ++s) {
      const auto lane = index(ranks_[r].steps[s].lane);
      (last[lane] == none ? heads_[r][lane] : next_in_lane_[first_[r] + last[lane]]) = static_cast<std::uint32_t>(s);
      last[lane] = static_cast<std::uint32_t>(s);
    }
  }

  void begin_ready(std::size_t r, double now) {
    for (const std::uint32_t head : heads_[r]) {
      if (head == none || begun_[first_[r] + head]) continue;
      const auto after = ranks_[r].after_of(head);
      const bool ready = std::all_of(after.begin(), after.end(), [&](StepId s) { return done_[first_[r] + index(s)]; });
      if (ready) begin(r, head, now);
    }
  }

  void begin(std::size_t r, std::size_t s, double now) {
    const std::size_t step = first_[r] + s;
    const ProgramSketch::Step& sketch = ranks_[r].steps[s];
    begun_[step] = true;
    spans_[step] = {ranks_[r].rank, sketch.lane, static_cast<StepId>(s), sketch.number, now, now};
    if (sketch.lane != Lane::compute) {
      exchanged_.clear();
      to_copy_.clear();
      network_.begin(step, now, exchanged_, to_copy_);
      end_exchanges(now);
      for (std::size_t i = 0; i < to_copy_.size(); ++i) {
        const std::uint32_t next = i + 1 < to_copy_.size() ? to_copy_[i + 1].message : none;
        copies_[to_copy_[i].message] = {r, to_copy_[i].seconds, next};
      }
      if (!to_copy_.empty()) copy(to_copy_.front().message, now);
    } else {
      work(r, step, threads_, seconds(r, s), now);
    }
  }

  void end_exchanges(double now) {
    for (const Network::Ended& e : exchanged_) {
      queue_.push({std::max(now, e.time), Completion::Kind::step, e.step, 0});
    }
  }

  void copy(std::uint32_t message, double now) {
    work(copies_[message].rank, copy_of(message), 1, copies_[message].seconds, now);
  }

  void end_copy(std::uint32_t message, double now) {
    exchanged_.clear();
    network_.copied(message, now, exchanged_);
    end_exchanges(now);
    if (copies_[message].next != none) copy(copies_[message].next, now);
  }

  Cores& cores_of(std::size_t r) { return cores_[index(machine_.node_of(ranks_[r].rank))]; }

  /// Something that takes `seconds` of a rank's device, or of as many cores as it has threads.
  void work(std::size_t r, std::size_t number, int threads, double seconds, double now) {
    if (cores_.empty() || seconds == 0) {
      queue_.push({now + seconds, Completion::Kind::step, number, 0});
    } else {
      cores_of(r).add(number, threads, seconds, now, queue_);
    }
  }

  double touch_seconds(std::int64_t bytes) const {
    return machine_.memory_bytes_per_s > 0 ? static_cast<double>(bytes) / machine_.memory_bytes_per_s / threads_ : 0;
  }
  double packing_seconds(const ProgramSketch::Packing& packing) const {
    return touch_seconds(packing.bytes - (machine_.cores > 0 ? packing.in_place_bytes : 0));
  }

  double seconds(std::size_t r, std::size_t s) const {
    const ProgramSketch::Step& step = ranks_[r].steps[s];
    const LaunchTimes::Launch launch = launches_.of(ranks_[r].works_of(s), step.expansion_flops);
    // Devices read and write for some tiles while they compute others.
    const std::int64_t tile_bytes = machine_.cores > 0 ? step.tile_bytes - launch.few_bytes : 0;
    return launch.besides_s + launch.seconds / threads_ / machine_.speed_of(ranks_[r].rank) +
           touch_seconds(step.touched_bytes + tile_bytes);
  }

  void end(std::size_t number, double now) {
    if (number >= copy_of(0)) return end_copy(static_cast<std::uint32_t>(number - copy_of(0)), now);
    if (number >= store_of(0)) return;
    if (number >= load_of(0)) {
      const std::size_t r = number - load_of(0);
      begin_ready(r, now);
      if (open_[r] == 0) work(r, store_of(r), threads_, packing_seconds(ranks_[r].store), now);
      return;
    }
    Span& span = spans_[number];
    span.end_s = now;
    done_[number] = true;
    const auto r = index(span.rank);
    heads_[r][index(span.lane)] = next_in_lane_[number];
    begin_ready(r, now);
    if (--open_[r] == 0) work(r, store_of(r), threads_, packing_seconds(ranks_[r].store), now);
  }

  std::span<const ProgramSketch> ranks_;
  Machine machine_;
  int threads_;
  std::vector<std::size_t> first_;  // by rank: its first step's global number, and one past the last
  Network network_;
  LaunchTimes launches_;
  std::vector<Span> spans_;  // by global number until the end
  std::vector<bool> done_, begun_;
  std::vector<std::uint32_t> next_in_lane_;
  std::vector<Heads> heads_;       // by rank and lane: the step that runs or waits
  std::vector<std::size_t> open_;  // by rank: steps that have not ended
  std::vector<Cores> cores_;       // by node; empty: every rank computes on a device of its own
  std::vector<NextCopy> copies_;   // by message
  std::vector<Network::Ended> exchanged_;
  std::vector<Network::Copy> to_copy_;
  EventQueue queue_;
};

/// The same machine where every rank has an equal part of its node's far link for itself.
Machine with_divided_links(Machine machine) {
  machine.far_owner = LinkOwner::rank;
  machine.far.bytes_per_s /= machine.ranks_per_node;
  return machine;
}

}  // namespace

Timeline simulate(const Outline& outline, std::span<const ProgramSketch> ranks, const Machine& machine, int threads) {
  check_described(machine, static_cast<int>(ranks.size()), outline.sharding.problem.dtype);
  Timeline timeline = Simulation(outline, ranks, machine, threads).run();
  if (machine.far_owner == LinkOwner::rank || machine.nodes == 1 || machine.ranks_per_node == 1) return timeline;
  Timeline divided = Simulation(outline, ranks, with_divided_links(machine), threads).run();
  return divided.seconds < timeline.seconds ? divided : timeline;
}

}  // namespace distattn
