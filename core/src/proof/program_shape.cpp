#include "core/src/proof/program_shape.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "distattn/index.hpp"

namespace distattn {
namespace {

class ShapeCheck {
 public:
  ShapeCheck(const Outline& outline, Rank rank, const RankProgram& program, std::vector<Finding>& findings)
      : outline_(outline), rank_(rank), program_(program), findings_(findings), before_(findings.size()) {}

  bool run() {
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) buffer(b);
    slots();
    std::int32_t index_of_step = 0;
    for (const Step& step : program_.steps) check(step, index_of_step++);
    return findings_.size() == before_;
  }

 private:
  void find(int number, const std::string& what) {
    findings_.push_back(
        {FindingKind::malformed, rank_, number, fmt::format("rank {} step {}: {}", rank_, number, what)});
  }

  void buffer(std::size_t b) {
    const BufferDecl& decl = program_.buffers[b];
    const Value& value = decl.value;
    const auto segments = is_key_side(value.kind) ? outline_.sharding.keys.size() : outline_.sharding.queries.size();
    const bool forward_kind = value.kind == ValueKind::output;
    const bool backward_kind = value.kind == ValueKind::dquery || value.kind == ValueKind::dkey_value;
    if (value.group < 0 || index(value.group) >= outline_.sharding.groups.size() || index(value.segment) >= segments ||
        (is_input(value.kind) ? value.contributor != -1 : value.contributor < 0) ||
        value.contributor >= outline_.sharding.ranks ||
        (outline_.pass == Pass::forward ? backward_kind : forward_kind)) {
      find(-1, fmt::format("buffer {} holds a value that this problem does not have", b));
      return;
    }
    if (decl.slot < 0 || index(decl.slot) >= program_.slots.size()) {
      find(-1, fmt::format("buffer {} lies in slot {}, of {}", b, decl.slot, program_.slots.size()));
      return;
    }
    const std::size_t bytes = buffer_bytes(outline_, value, decl.dtype);
    if (decl.bytes != bytes || program_.slots[index(decl.slot)] < bytes) {
      find(-1, fmt::format("buffer {} for {} needs {} bytes; it declares {} in a slot of {}", b, to_string(value),
                           bytes, decl.bytes, program_.slots[index(decl.slot)]));
    }
    if (is_input(value.kind) && decl.dtype != outline_.sharding.problem.dtype) {
      find(-1, fmt::format("buffer {} keeps an input as {}, the problem has {}", b, name_of(decl.dtype),
                           name_of(outline_.sharding.problem.dtype)));
    }
  }

  /// Every slot belongs to some buffer, and one after the other, each on its boundary, they have a size.
  void slots() {
    std::vector<bool> used(program_.slots.size(), false);
    for (const BufferDecl& decl : program_.buffers)
      if (decl.slot >= 0 && index(decl.slot) < used.size()) used[index(decl.slot)] = true;

    constexpr std::size_t most = std::numeric_limits<std::ptrdiff_t>::max();
    std::size_t left = most;
    for (std::size_t s = 0; s < used.size(); ++s) {
      const std::size_t bytes = program_.slots[s];
      if (!used[s]) find(-1, fmt::format("slot {} of {} bytes belongs to no buffer", s, bytes));
      if (left < buffer_alignment || bytes > left - buffer_alignment) {
        find(-1, fmt::format("slots 0 to {} take more than {} bytes", s, most));
        return;
      }
      left -= bytes + buffer_alignment;
    }
  }

  void check(const Step& step, std::int32_t position) {
    const bool compute = step.lane == Lane::compute;
    if (step.lane > Lane::far || step.number < 0 || step.due < step.number || (compute && step.due != step.number)) {
      find(step.number, fmt::format("a step cannot be due in step {}", step.due));
    }
    constexpr std::int32_t last_step = 1 << 30;
    if (step.due > last_step) find(step.number, fmt::format("steps are numbered to {} at most", last_step));
    for (const StepId after : step.after) {
      if (static_cast<std::int32_t>(after) < 0 || index(after) >= program_.steps.size()) {
        find(step.number,
             fmt::format("waits for step {} of {}", static_cast<std::int32_t>(after), program_.steps.size()));
      } else if (static_cast<std::int32_t>(after) >= position) {
        findings_.push_back({FindingKind::deadlock, rank_, step.number,
                             fmt::format("rank {} step {}: waits for a step that comes after it", rank_, step.number)});
      }
    }
    for (const Op& op : step.ops) std::visit([&](const auto& o) { operation(step, o); }, op);
    for (const Gather& gather : step.gathers) {
      if (compute || gather.buffers.size() < 2) find(step.number, "a gather that is none");
      for (const BufferId buffer : gather.buffers) known(step, buffer);
    }
  }

  bool known(const Step& step, BufferId buffer) {
    if (static_cast<std::int32_t>(buffer) >= 0 && index(buffer) < program_.buffers.size()) return true;
    find(step.number, fmt::format("buffer {} of {}", static_cast<std::int32_t>(buffer), program_.buffers.size()));
    return false;
  }
  template <class O>
  void operation(const Step& step, const O& op) {
    constexpr bool exchange = std::is_same_v<O, Send> || std::is_same_v<O, Recv>;
    if (exchange == (step.lane == Lane::compute)) find(step.number, "an operation of another lane");
    if constexpr (std::is_same_v<O, Send>) {
      known(step, op.source);
      peer(step, op.to);
    } else if constexpr (std::is_same_v<O, Recv>) {
      known(step, op.into);
      peer(step, op.from);
    } else if constexpr (std::is_same_v<O, Attend> || std::is_same_v<O, AttendBackward>) {
      constexpr bool backward = std::is_same_v<O, AttendBackward>;
      if (backward != (outline_.pass == Pass::backward)) find(step.number, "a tile of the other pass");
      known(step, op.query);
      if constexpr (backward)
        known(step, op.dquery);
      else
        known(step, op.output);
      if (op.keys.empty()) find(step.number, "an attend without keys");
      for (const KeyChunk& chunk : op.keys) {
        known(step, chunk.key_value);
        if constexpr (backward) known(step, chunk.dkey_value);
      }
    } else if constexpr (std::is_same_v<O, Clear>) {
      known(step, op.buffer);
    } else {
      known(step, op.into);
      known(step, op.from);
    }
  }
  void peer(const Step& step, Rank peer) {
    if (peer < 0 || peer >= outline_.sharding.ranks || peer == rank_) {
      find(step.number,
           fmt::format("a message between rank {} and rank {} of {}", rank_, peer, outline_.sharding.ranks));
    } else if (is_far(outline_, rank_, peer) != (step.lane == Lane::far)) {
      find(step.number, fmt::format("rank {} is reached by the other lane", peer));
    }
  }

  const Outline& outline_;
  Rank rank_;
  const RankProgram& program_;
  std::vector<Finding>& findings_;
  std::size_t before_;
};

}  // namespace

bool check_shape(const Outline& outline, Rank rank, const RankProgram& program, std::vector<Finding>& findings) {
  return ShapeCheck(outline, rank, program, findings).run();
}

}  // namespace distattn
