#pragma once
/// Which buffers operations touch, for everything that orders or groups operations or places their values.

#include <functional>
#include <utility>
#include <variant>
#include <vector>

#include "distattn/schedule.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// A write may also read what it adds to.
enum class Access : std::uint8_t { read, write };

/// Calls a function with (buffer, Access) for every buffer that an operation touches.
template <class Visit>
struct AccessVisitor {
  Visit visit;

  void operator()(const Send& op) const { visit(op.source, Access::read); }
  void operator()(const Recv& op) const { visit(op.into, Access::write); }
  void operator()(const Attend& op) const {
    visit(op.query, Access::read);
    for (const KeyChunk& chunk : op.keys) visit(chunk.key_value, Access::read);
    visit(op.output, Access::write);
  }
  void operator()(const AttendBackward& op) const {
    visit(op.query, Access::read);
    for (const KeyChunk& chunk : op.keys) {
      visit(chunk.key_value, Access::read);
      visit(chunk.dkey_value, Access::write);
    }
    visit(op.dquery, Access::write);
  }
  void operator()(const Merge& op) const { from_into(op); }
  void operator()(const Accumulate& op) const { from_into(op); }
  void operator()(const Convert& op) const { from_into(op); }
  void operator()(const Clear& op) const { visit(op.buffer, Access::write); }

  template <class O>
  void from_into(const O& op) const {
    visit(op.from, Access::read);
    visit(op.into, Access::write);
  }
};
template <class Visit>
void for_each_access(const Op& op, Visit visit) {
  std::visit(AccessVisitor<Visit>{std::move(visit)}, op);
}

/// By buffer: whether cores had better use it where it lies in a caller's tensor than pack it first. Attention's tiles
/// alone touch it, and its rows do not meet so many others that packing them once costs less than reading rows that lie
/// apart again and again. `pairs` counts the visible pairs of two segments.
std::vector<bool> better_in_place(const Outline& outline, const RankProgram& program,
                                  const std::function<std::int64_t(SegmentId query, SegmentId key)>& pairs);

}  // namespace distattn
#pragma GCC visibility pop
