#include "core/src/proof/program_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/src/proof/gather_check.hpp"
#include "core/src/proof/program_order.hpp"
#include "core/src/proof/program_shape.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

/// What is known of a buffer while the program is walked.
enum class Content : std::uint8_t {
  nothing,   ///< never written
  gone,      ///< its slot was given to another value
  input,     ///< an input, own or received
  open,      ///< a result that is being added to
  received,  ///< a partial result that came by message or by conversion
  sealed,    ///< a result that was sent, merged or converted: its contribution has left this buffer
};

class ProgramCheck {
 public:
  ProgramCheck(const Outline& outline, const Tiles& tiles, const ValueIndex& values, Rank rank,
               const RankProgram& program, RankCheck& out)
      : outline_(outline),
        tiles_(tiles),
        values_(values),
        rank_(rank),
        program_(program),
        out_(out),
        content_(program.buffers.size(), Content::nothing),
        available_after_(program.buffers.size(), -1),
        first_(program.buffers.size(), -1),
        last_(program.buffers.size(), -1),
        in_slot_(program.slots.size(), BufferId{-1}),
        coverage_(values.size()),
        order_(rank, program, out),
        gathers_(outline, rank, program, out) {}

  void run() {
    load_own();
    for (const Step& step : program_.steps) {
      step_ = &step;
      out_.steps = std::max({out_.steps, step_->number + 1, step_->due + 1});
      order_.next(step);
      gathers_.next(step);
      for (const Op& op : step_->ops) std::visit([this](const auto& o) { apply(o); }, op);
    }
    finish_own();
    count_memory();
    for (std::size_t v = 0; v < coverage_.size(); ++v) {
      if (coverage_[v].count != 0) out_.coverage.push_back({v, coverage_[v]});
    }
  }

 private:
  const BufferDecl& decl(BufferId b) const { return program_.buffers[index(b)]; }
  Rank owner(BufferId b) const { return owner_of(outline_, decl(b).value); }
  bool own_result(BufferId b) const {
    return !is_input(decl(b).value.kind) && owner(b) == rank_ && decl(b).value.contributor == rank_;
  }
  std::string name(BufferId b) const { return to_string(decl(b).value); }

  void find(FindingKind kind, const std::string& what) {
    const int number = step_ != nullptr ? step_->number : -1;
    out_.findings.push_back(finding_at(kind, rank_, number, what));
  }

  /// Own inputs are there from the start, each in one buffer with a slot of its own.
  void load_own() {
    std::set<Value> own;
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      const auto buffer = static_cast<BufferId>(b);
      if (!own_result(buffer) && !(is_input(decl(buffer).value.kind) && owner(buffer) == rank_)) continue;
      if (!is_input(decl(buffer).value.kind) && decl(buffer).dtype != dtype_of(outline_, decl(buffer).value.kind))
        find(FindingKind::undelivered,
             fmt::format("its own {} is kept as {}", name(buffer), name_of(decl(buffer).dtype)));
      if (!own.insert(decl(buffer).value).second)
        find(FindingKind::undelivered, "two buffers for its own " + name(buffer));
      if (!is_input(decl(buffer).value.kind)) continue;
      const auto slot = index(decl(buffer).slot);
      if (in_slot_[slot] != BufferId{-1}) find(FindingKind::late, name(buffer) + " shares its slot from the start");
      in_slot_[slot] = buffer;
      content_[b] = Content::input;
    }
    for_each_own([&](const Value& value) {
      if (!own.contains(value)) find(FindingKind::undelivered, "no buffer for its own " + to_string(value));
    });
  }
  template <class Visit>
  void for_each_own(Visit visit) const {
    for (int group = 0; group < tiles_.groups(); ++group) {
      for (const SegmentId i : tiles_.queries_of(rank_)) {
        visit(values_.input(values_.query(group, i)));
        visit(values_.result(values_.query(group, i), outline_.pass, rank_));
      }
      for (const SegmentId j : tiles_.keys_of(rank_)) {
        visit(values_.input(values_.key(group, j)));
        if (outline_.pass == Pass::backward) visit(values_.result(values_.key(group, j), outline_.pass, rank_));
      }
    }
  }
  /// Own results must stand in their buffers at the end; everything else must have left.
  void finish_own() {
    step_ = nullptr;
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      const auto buffer = static_cast<BufferId>(b);
      if (own_result(buffer)) {
        if (content_[b] != Content::open || in_slot_[index(decl(buffer).slot)] != buffer) {
          find(FindingKind::undelivered, name(buffer) + " is not there at the end");
        }
      } else if (content_[b] == Content::open || content_[b] == Content::received) {
        find(FindingKind::leak, name(buffer) + " is neither sent nor merged");
      }
    }
  }

  void touch(BufferId b) {
    if (first_[index(b)] < 0) first_[index(b)] = step_->number;
    last_[index(b)] = std::max(last_[index(b)], step_->lane == Lane::compute ? step_->number : step_->due);
  }
  /// True when the buffer holds its value now.
  bool present(BufferId b) {
    touch(b);
    if (content_[index(b)] == Content::nothing) {
      find(FindingKind::early, name(b) + " is read before it is there");
    } else if (content_[index(b)] == Content::gone || in_slot_[index(decl(b).slot)] != b) {
      find(FindingKind::late, name(b) + " is read after its slot was given to another value");
    } else if (available_after_[index(b)] >= step_->number) {
      find(FindingKind::early,
           fmt::format("{} is read before step {}, when it is due, has ended", name(b), available_after_[index(b)]));
    } else {
      return true;
    }
    return false;
  }
  /// The buffer's slot now holds its value, and no other.
  void place(BufferId b, Content content) {
    touch(b);
    BufferId& before = in_slot_[index(decl(b).slot)];
    if (before != BufferId{-1} && before != b) overwrite(before);
    if (content_[index(b)] == Content::open || content_[index(b)] == Content::received) overwrite(b);
    if (content_[index(b)] == Content::sealed)
      find(FindingKind::altered, name(b) + " is begun again after it was sent");
    before = b;
    content_[index(b)] = content;
    available_after_[index(b)] = -1;
  }
  void overwrite(BufferId b) {
    if (content_[index(b)] == Content::open || content_[index(b)] == Content::received) {
      find(FindingKind::leak, name(b) + " is overwritten before it was sent or merged");
    }
    if (content_[index(b)] == Content::input && owner(b) == rank_)
      find(FindingKind::late, name(b) + " is overwritten at its owner");
    if (content_[index(b)] != Content::sealed) content_[index(b)] = Content::gone;
  }
  /// A result about to be added to.
  void add_to(BufferId b, Start start) {
    if (start == Start::fresh) return place(b, Content::open);
    if (content_[index(b)] == Content::sealed) {
      touch(b);
      find(FindingKind::altered, name(b) + " is updated after it was sent");
    } else if (present(b) && content_[index(b)] != Content::open) {
      find(FindingKind::misplaced, name(b) + " is not a result of this rank");
    }
  }
  /// A result whose contribution leaves its buffer: once.
  void consume(BufferId b) {
    if (content_[index(b)] == Content::sealed) {
      touch(b);
      find(FindingKind::coverage, name(b) + " is sent or merged twice");
    } else if (present(b)) {
      if (own_result(b)) find(FindingKind::undelivered, name(b) + " leaves its owner");
      content_[index(b)] = Content::sealed;
    }
  }
  void expect(bool holds, BufferId b, const char* role) {
    if (!holds) find(FindingKind::misplaced, fmt::format("{} cannot be {}", name(b), role));
  }
  void expect_accumulator(BufferId b) {
    expect(decl(b).dtype == outline_.sharding.problem.accumulator(), b, "added to in its element type");
    expect(decl(b).value.contributor == rank_, b, "added to here");
  }

  void message(BufferId b, Rank peer, bool sending) {
    const MessageKey key{sending ? rank_ : peer, sending ? peer : rank_, step_->number, step_->due, step_->lane,
                         decl(b).dtype,          decl(b).value,          gathers_.of(b)};
    (sending ? out_.sends : out_.receives).push_back(key);
  }
  void apply(const Send& op) {
    const BufferId b = op.source;
    message(b, op.to, true);
    const auto bytes = static_cast<std::int64_t>(message_bytes(outline_, decl(b).value, decl(b).dtype));
    ++out_.messages;
    out_.bytes_sent += bytes;
    if (step_->lane == Lane::far) out_.bytes_far += bytes;
    if (is_input(decl(b).value.kind)) {
      present(b);
    } else {
      expect(decl(b).dtype == outline_.sharding.problem.wire_type(), b, "sent in its element type");
      expect(decl(b).value.contributor == rank_, b, "sent as another rank's");
      consume(b);
    }
  }
  void apply(const Recv& op) {
    const BufferId b = op.into;
    message(b, op.from, false);
    if (!is_input(decl(b).value.kind)) {
      expect(decl(b).dtype == outline_.sharding.problem.wire_type(), b, "received in its element type");
      expect(decl(b).value.contributor == op.from, b, "another rank's than its sender's");
    }
    place(b, is_input(decl(b).value.kind) ? Content::input : Content::received);
    available_after_[index(b)] = step_->due;
  }
  template <class O>
  void tiles_of(const O& op, BufferId result, ValueKind result_kind) {
    const Value& query = decl(op.query).value;
    expect(query.kind == ValueKind::query, op.query, "a query side");
    present(op.query);
    const Value& target = decl(result).value;
    expect(target.kind == result_kind && target.group == query.group && target.segment == query.segment, result,
           "the result of these queries");
    expect_accumulator(result);
    add_to(result, op.start);
    for (const KeyChunk& chunk : op.keys) {
      const Value& key = decl(chunk.key_value).value;
      expect(key.kind == ValueKind::key_value && key.group == query.group, chunk.key_value,
             "the keys of these queries");
      present(chunk.key_value);
      if (query.kind != ValueKind::query || key.kind != ValueKind::key_value) continue;
      const Tile tile{query.group, query.segment, key.segment};
      ++out_.tiles;
      cover(values_.query(tile.group, tile.query), tile);
      if (outline_.pass == Pass::forward) continue;
      const Value& gradient = decl(chunk.dkey_value).value;
      expect(gradient.kind == ValueKind::dkey_value && gradient.group == key.group && gradient.segment == key.segment,
             chunk.dkey_value, "the gradient of these keys");
      expect_accumulator(chunk.dkey_value);
      add_to(chunk.dkey_value, chunk.start);
      cover(values_.key(tile.group, tile.key), tile);
    }
  }
  void cover(std::size_t result, const Tile& tile) {
    const std::uint64_t hash = hash_of(tile.group, tile.query, tile.key);
    coverage_[result].add(hash);
    out_.computed.push_back({result, hash, tile, rank_, step_->number});
  }
  void apply(const Attend& op) { tiles_of(op, op.output, ValueKind::output); }
  void apply(const AttendBackward& op) { tiles_of(op, op.dquery, ValueKind::dquery); }
  void combine(BufferId into, BufferId from, bool outputs) {
    const Value &a = decl(into).value, &b = decl(from).value;
    expect((a.kind == ValueKind::output) == outputs && !is_input(a.kind), into, "merged this way");
    expect(a.kind == b.kind && a.group == b.group && a.segment == b.segment && into != from, from,
           "merged into another value");
    expect(b.contributor != rank_, from, "merged where it was made");
    expect_accumulator(into);
    consume(from);
    add_to(into, Start::carry);
  }
  void apply(const Merge& op) { combine(op.into, op.from, true); }
  void apply(const Accumulate& op) { combine(op.into, op.from, false); }
  void apply(const Convert& op) {
    expect(decl(op.into).value == decl(op.from).value && op.into != op.from, op.into, "a conversion of that");
    expect(!is_input(decl(op.from).value.kind), op.from, "converted");
    expect_accumulator(op.from);  // what is rounded once for the wire is not rounded again
    expect(decl(op.into).dtype == outline_.sharding.problem.wire_type(), op.into, "converted to its element type");
    consume(op.from);
    place(op.into, Content::received);
  }
  void apply(const Clear& op) {
    expect(!is_input(decl(op.buffer).value.kind), op.buffer, "cleared");
    expect_accumulator(op.buffer);
    place(op.buffer, Content::open);
  }

  /// Values that the rank does not own, held at once: from a buffer's first step to its last, both included.
  void count_memory() {
    std::map<int, std::int64_t> change;
    std::vector<bool> remote(program_.slots.size(), false);
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      const Value& value = program_.buffers[b].value;
      const bool away = owner_of(outline_, value) != rank_ || (!is_input(value.kind) && value.contributor != rank_);
      if (!away) continue;
      remote[index(program_.buffers[b].slot)] = true;
      if (first_[b] < 0) continue;
      ++change[first_[b]];
      --change[last_[b] + 1];
    }
    std::int64_t held = 0;
    for (const auto& [number, delta] : change)
      out_.peak_remote_values = std::max(out_.peak_remote_values, held += delta);
    for (std::size_t s = 0; s < program_.slots.size(); ++s) {
      const auto bytes = static_cast<std::int64_t>(program_.slots[s]);
      out_.memory_bytes += bytes;
      if (remote[s]) out_.peak_remote_bytes += bytes;
    }
  }

  const Outline& outline_;
  const Tiles& tiles_;
  const ValueIndex& values_;
  Rank rank_;
  const RankProgram& program_;
  RankCheck& out_;
  const Step* step_ = nullptr;

  std::vector<Content> content_;      // by buffer
  std::vector<int> available_after_;  // by buffer: the step after which what was received may be read
  std::vector<int> first_, last_;     // by buffer: steps in which it is touched
  std::vector<BufferId> in_slot_;     // by slot: whose value it holds
  std::vector<HashSum> coverage_;     // by result: tiles computed here
  OrderCheck order_;
  GatherCheck gathers_;
};

}  // namespace

std::uint64_t hash_of(const MessageKey& key) {
  const auto pack = [](int a, int b) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32 | static_cast<std::uint32_t>(b);
  };
  std::uint64_t hash = mix(pack(key.from, key.to));
  hash = mix(hash ^ pack(key.number, key.due));
  hash =
      mix(hash ^ pack(static_cast<int>(key.lane) * 16 + static_cast<int>(key.dtype), static_cast<int>(key.value.kind)));
  hash = mix(hash ^ pack(key.value.group, static_cast<int>(key.value.segment)));
  hash = mix(hash ^ pack(key.value.contributor, 0));
  return key.gather == 0 ? hash : mix(hash ^ key.gather);
}

Finding finding_at(FindingKind kind, Rank rank, int number, const std::string& what) {
  return {kind, rank, number, fmt::format("rank {} step {}: {}", rank, number, what)};
}

RankCheck check_program(const Outline& outline, const Tiles& tiles, const ValueIndex& values, Rank rank,
                        const RankProgram& program) {
  RankCheck out;
  if (check_shape(outline, rank, program, out.findings)) {
    ProgramCheck(outline, tiles, values, rank, program, out).run();
  }
  return out;
}

}  // namespace distattn
