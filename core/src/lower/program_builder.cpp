#include "core/src/lower/program_builder.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "core/src/lower/slots.hpp"
#include "core/src/schedule/hazards.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

constexpr BufferId none{-1};

class ProgramBuilder {
 public:
  ProgramBuilder(const Outline& outline, const Tiles& tiles, const ValueIndex& values, Rank rank,
                 std::span<const PlacedTile> placed, const std::vector<Message>& messages,
                 std::span<const RowGather* const> gathers)
      : outline_(outline),
        tiles_(tiles),
        values_(values),
        rank_(rank),
        placed_(placed),
        gathers_(gathers),
        inputs_(values.size(), none),
        results_(values.size(), none),
        last_use_(values.size(), -1) {
    for (const Message& message : messages) (message.from == rank ? sends_ : receives_).push_back(message);
    // Within a group by (peer, Value): numbers of values rise as Values do, inputs before results.
    const auto order = [this](const Message& m) {
      return std::tuple(m.post, m.far, m.due, m.from == rank_ ? m.to : m.from, m.result, m.value);
    };
    const auto before = [&](const Message& a, const Message& b) { return order(a) < order(b); };
    std::sort(sends_.begin(), sends_.end(), before);
    std::sort(receives_.begin(), receives_.end(), before);
  }

  RankProgram build() {
    find_last_uses();
    place_gathers();
    declare_own();
    const int end = last_number();
    for (int number = 0; number <= end; ++number) {
      number_ = number;
      open_merges();
      exchange();
      attend();
      release();
    }
    program_.slots = std::move(slots_).bytes();
    order_lanes();
    return std::move(program_);
  }

 private:
  Value value_of(const Message& m) const {
    const auto number = index(m.value);
    return m.result ? values_.result(number, outline_.pass, m.from) : values_.input(number);
  }

  /// Where an input is read last here: by a tile, or by a message that passes it on.
  void find_last_uses() {
    for (const auto& [number, tile] : placed_) {
      last_use_[values_.query(tile.group, tile.query)] = number;
      last_use_[values_.key(tile.group, tile.key)] = number;
    }
    for (const Message& m : sends_) {
      if (!m.result) last_use_[at(m)] = std::max(last_use_[at(m)], m.due);
    }
  }
  int last_number() const {
    int last = placed_.empty() ? 0 : placed_.back().number;
    for (const Message& m : sends_) last = std::max(last, m.due);
    for (const Message& m : receives_) last = std::max(last, m.due + (m.result ? 1 : 0));
    return last;
  }

  BufferId declare_in(int slot, const Value& value, DType dtype, std::size_t bytes) {
    program_.buffers.push_back({value, dtype, bytes, slot});
    return static_cast<BufferId>(program_.buffers.size() - 1);
  }
  BufferId declare(const Value& value, DType dtype, bool own) {
    const std::size_t bytes = buffer_bytes(outline_, value, dtype);
    return declare_in(own ? slots_.take_own(bytes) : slots_.take(bytes), value, dtype, bytes);
  }
  BufferId declare(const Value& value, bool own) { return declare(value, dtype_of(outline_, value.kind), own); }
  BufferId declare_input(std::size_t number, bool own) {
    const Value value = values_.input(number);
    const auto placed = gathered_slots_.find(number);
    if (placed == gathered_slots_.end()) return declare(value, own);
    const DType dtype = dtype_of(outline_, value.kind);
    return declare_in(placed->second, value, dtype, buffer_bytes(outline_, value, dtype));
  }

  /// What a gather brings lies side by side with the own contribution.
  void place_gathers() {
    for (const RowGather* gather : gathers_) {
      for (const std::int32_t number : gather->values) {
        gathered_slots_[index(number)] = slots_.take_fixed(gather->slot_bytes);
      }
    }
  }

  /// Own inputs and results have buffers for the whole program, whether a tile touches them or not.
  void declare_own() {
    const auto side = [&](std::span<const SegmentId> segments, bool keys) {
      for (int group = 0; group < tiles_.groups(); ++group) {
        for (const SegmentId segment : segments) {
          const std::size_t number = keys ? values_.key(group, segment) : values_.query(group, segment);
          inputs_[number] = declare_input(number, true);
          if (keys && outline_.pass == Pass::forward) continue;
          results_[number] = declare(values_.result(number, outline_.pass, rank_), true);
          own_results_.push_back(number);
        }
      }
    };
    side(tiles_.queries_of(rank_), false);
    side(tiles_.keys_of(rank_), true);
    started_.assign(values_.size(), false);
  }

  /// Merges of what arrived in the step before, results converted for the wire, and, in the first step, the identity
  /// for own results that no tile of this rank begins.
  void open_merges() {
    Step step{number_, number_, Lane::compute, {}, {}};
    if (number_ == 0) clear_untouched(step);
    if (const auto arrived = arrived_.find(number_ - 1); arrived != arrived_.end()) {
      for (const auto& [number, from] : arrived->second) {
        begin(number, step);
        if (outline_.pass == Pass::forward)
          step.ops.push_back(Merge{results_[number], from});
        else
          step.ops.push_back(Accumulate{results_[number], from});
        free_after(number_, from);
      }
      arrived_.erase(arrived);
    }
    if (outline_.sharding.problem.wire_type() != outline_.sharding.problem.accumulator()) {
      for (std::size_t s = next_send_; s < sends_.size() && sends_[s].post == number_; ++s) {
        if (sends_[s].result) convert(at(sends_[s]), step);
      }
    }
    push(std::move(step));
  }
  void clear_untouched(Step& step) {
    std::vector<bool> touched(values_.size(), false);
    for (const auto& [number, tile] : placed_) {
      touched[values_.query(tile.group, tile.query)] = true;
      touched[values_.key(tile.group, tile.key)] = true;
    }
    for (const Message& m : receives_) {
      if (m.result) touched[at(m)] = true;
    }
    for (const std::size_t number : own_results_) {
      if (!touched[number]) begin(number, step);
    }
  }
  /// Makes sure that a result can be added to.
  void begin(std::size_t number, Step& step) {
    if (results_[number] == none) results_[number] = declare(values_.result(number, outline_.pass, rank_), false);
    if (!started_[number]) step.ops.push_back(Clear{results_[number]});
    started_[number] = true;
  }
  void convert(std::size_t number, Step& step) {
    const Value value = values_.result(number, outline_.pass, rank_);
    const BufferId wire = declare(value, outline_.sharding.problem.wire_type(), false);
    step.ops.push_back(Convert{wire, results_[number]});
    free_after(number_, results_[number]);
    results_[number] = wire;
  }

  /// One step for each (lane, due) group of this number's messages.
  void exchange() {
    const auto key = [](const Message& m) { return std::pair<bool, int>(m.far, m.due); };
    const auto more = [this](const std::vector<Message>& list, std::size_t next) {
      return next < list.size() && list[next].post == number_;
    };
    while (more(sends_, next_send_) || more(receives_, next_receive_)) {
      auto group = std::pair(true, INT32_MAX);
      if (more(sends_, next_send_)) group = std::min(group, key(sends_[next_send_]));
      if (more(receives_, next_receive_)) group = std::min(group, key(receives_[next_receive_]));
      Step step{number_, group.second, group.first ? Lane::far : Lane::near, {}, {}};
      for (; more(sends_, next_send_) && key(sends_[next_send_]) == group; ++next_send_) {
        step.ops.push_back(send(sends_[next_send_]));
      }
      for (; more(receives_, next_receive_) && key(receives_[next_receive_]) == group; ++next_receive_) {
        step.ops.push_back(receive(receives_[next_receive_]));
      }
      for (const RowGather* gather : gathers_) {
        if (gather->post == number_ && std::pair(gather->far, gather->due) == group)
          step.gathers.push_back(of(*gather));
      }
      push(std::move(step));
    }
  }
  Gather of(const RowGather& row) const {
    Gather gather;
    for (const std::int32_t number : row.values) gather.buffers.push_back(inputs_[index(number)]);
    return gather;
  }
  Op send(const Message& m) {
    if (!m.result) return Send{inputs_[at(m)], m.to};
    const BufferId buffer = results_[at(m)];
    free_after(m.due, buffer);
    results_[at(m)] = none;
    return Send{buffer, m.to};
  }
  Op receive(const Message& m) {
    if (m.result) {
      const BufferId buffer = declare(value_of(m), outline_.sharding.problem.wire_type(), false);
      arrived_[m.due].push_back({at(m), buffer});
      return Recv{buffer, m.from};
    }
    const BufferId buffer = declare_input(at(m), false);
    inputs_[at(m)] = buffer;
    free_after(last_use_[at(m)], buffer);
    return Recv{buffer, m.from};
  }

  /// This number's tiles: one operation a query segment, with all its key segments, in the table's order.
  void attend() {
    Step step{number_, number_, Lane::compute, {}, {}};
    std::map<std::size_t, std::size_t> op_of;
    std::set<BufferId> begun;  // key gradients that this step begins
    for (; next_tile_ < placed_.size() && placed_[next_tile_].number == number_; ++next_tile_) {
      const Tile& tile = placed_[next_tile_].tile;
      const std::size_t query = values_.query(tile.group, tile.query), key = values_.key(tile.group, tile.key);
      const auto [found, added] = op_of.insert({query, step.ops.size()});
      if (outline_.pass == Pass::forward) {
        if (added) step.ops.push_back(Attend{inputs_[query], result(query), {}, started(query)});
        std::get<Attend>(step.ops[found->second]).keys.push_back({inputs_[key], none, Start::fresh});
      } else {
        if (added) step.ops.push_back(AttendBackward{inputs_[query], result(query), {}, started(query)});
        const BufferId gradient = result(key);
        if (started(key) == Start::fresh) begun.insert(gradient);
        std::get<AttendBackward>(step.ops[found->second]).keys.push_back({inputs_[key], gradient, Start::carry});
      }
    }
    begin_gradients(step, begun);
    push(std::move(step));
  }
  /// The first to touch a key's gradient is the first in the order of operations, which is not that of tiles.
  static void begin_gradients(Step& step, std::set<BufferId>& begun) {
    if (begun.empty()) return;
    for (Op& op : step.ops) {
      for (KeyChunk& chunk : std::get<AttendBackward>(op).keys) {
        if (begun.erase(chunk.dkey_value) > 0) chunk.start = Start::fresh;
      }
    }
  }
  BufferId result(std::size_t number) {
    if (results_[number] == none) results_[number] = declare(values_.result(number, outline_.pass, rank_), false);
    return results_[number];
  }
  Start started(std::size_t number) {
    const Start start = started_[number] ? Start::carry : Start::fresh;
    started_[number] = true;
    return start;
  }

  void push(Step step) {
    if (!step.ops.empty()) program_.steps.push_back(std::move(step));
  }
  void free_after(int number, BufferId buffer) { dying_[number].push_back(buffer); }
  void release() {
    if (const auto dead = dying_.find(number_); dead != dying_.end()) {
      for (const BufferId buffer : dead->second) slots_.give_back(program_.buffers[index(buffer)].slot);
      dying_.erase(dead);
    }
  }

  /// Adds to each step the fewest earlier steps of other lanes that order its slots' accesses.
  void order_lanes() {
    SlotHistory history(program_.slots.size());
    LaneClocks clocks;
    std::vector<std::int32_t> needed;
    for (std::size_t s = 0; s < program_.steps.size(); ++s) {
      Step& step = program_.steps[s];
      needed.clear();
      const auto slot = [&](BufferId buffer) { return program_.buffers[index(buffer)].slot; };
      for (const Op& op : step.ops) {
        for_each_access(op, [&](BufferId buffer, Access access) {
          history.for_each_conflict(slot(buffer), access, [&](std::int32_t earlier) { needed.push_back(earlier); });
        });
      }
      if (outline_.mode == Mode::serial && step.lane == Lane::compute) need_exchanges(step, s, needed);
      std::sort(needed.begin(), needed.end(), std::greater<>());
      LaneClock clock = clocks.begin(step.lane);
      for (const std::int32_t earlier : needed) {
        const auto lane = index(program_.steps[index(earlier)].lane);
        if (clock[lane] >= earlier) continue;
        step.after.push_back(static_cast<StepId>(earlier));
        clocks.join(clock, earlier);
      }
      std::sort(step.after.begin(), step.after.end());
      clocks.append(step.lane, clock);
      for (const Op& op : step.ops) {
        for_each_access(op, [&](BufferId buffer, Access access) {
          history.record(slot(buffer), access, step.lane, static_cast<std::int32_t>(s));
        });
      }
    }
  }
  /// Serial mode: tiles also wait for the exchanges of their own step.
  void need_exchanges(const Step& step, std::size_t s, std::vector<std::int32_t>& needed) const {
    for (std::size_t e = s; e-- > 0 && program_.steps[e].number == step.number;) {
      if (program_.steps[e].lane != Lane::compute) needed.push_back(static_cast<std::int32_t>(e));
    }
  }

  static std::size_t at(const Message& m) { return index(m.value); }

  const Outline& outline_;
  const Tiles& tiles_;
  const ValueIndex& values_;
  Rank rank_;
  std::span<const PlacedTile> placed_;
  std::span<const RowGather* const> gathers_;
  std::vector<Message> sends_, receives_;
  std::size_t next_send_ = 0, next_receive_ = 0, next_tile_ = 0;
  int number_ = 0;

  std::vector<BufferId> inputs_, results_;     // by value: where it is now
  std::vector<bool> started_;                  // by value: its result here can be added to
  std::vector<int> last_use_;                  // by value: of an input that is here for a while
  std::map<std::size_t, int> gathered_slots_;  // by value
  std::vector<std::size_t> own_results_;
  std::map<int, std::vector<std::pair<std::size_t, BufferId>>> arrived_;  // by due: results to be merged
  std::map<int, std::vector<BufferId>> dying_;                            // by number: free when it has ended
  SlotAllocator slots_;
  RankProgram program_;
};

}  // namespace

RankProgram build_program(const Outline& outline, const Tiles& tiles, const ValueIndex& values, Rank rank,
                          std::span<const PlacedTile> placed, const std::vector<Message>& messages,
                          std::span<const RowGather* const> gathers) {
  return ProgramBuilder(outline, tiles, values, rank, placed, messages, gathers).build();
}

}  // namespace distattn
