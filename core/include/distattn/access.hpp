#pragma once
/// Which buffers an operation touches: for code that orders operations, groups them, or places their values.

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

/// For each buffer: whether CPU kernels should read it in place, in the caller's tensor, rather than pack it first.
/// True if only attention's tiles touch it, and if its rows are read so few times that reading rows that lie apart
/// costs less than packing them once. `pairs` counts the visible pairs of two segments.
std::vector<bool> use_in_place(const Outline& outline, const RankProgram& program,
                               const std::function<std::int64_t(SegmentId query, SegmentId key)>& pairs);

}  // namespace distattn
#pragma GCC visibility pop
