#pragma once
/// The fields of a schedule's structs, listed once: what is written, what is read and what a reader accepts.

#include <array>
#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "distattn/schedule.hpp"

namespace distattn {

// fields_of(struct, visit) calls visit(name, field) for each field, and visit.newer(name, field) for those that are not
// in what older builds wrote: they then have their defaults.

/// What an integer field may hold.
enum class Range : std::uint8_t {
  any,
  from_minus_one,
  from_zero,
  from_one,
  rank,
  contributor,  ///< a rank, or −1
  group,
  query,
  key,
  buffer,
  buffer_or_none,  ///< −1: none
  slot,
  step,
};

template <class T, class Struct>
concept Fields = std::same_as<std::remove_const_t<T>, Struct>;

template <class Visit>
void fields_of(Fields<Segment> auto& segment, Visit&& visit) {
  visit("start", segment.run.start, Range::any);
  visit("count", segment.run.count, Range::from_zero);
  visit("stride", segment.run.stride, Range::from_one);
  visit("owner", segment.owner, Range::rank);
}

template <class Visit>
void fields_of(Fields<HeadGroup> auto& group, Visit&& visit) {
  visit("q0", group.q0, Range::from_zero);
  visit("q_count", group.q_count, Range::from_zero);
  visit("kv0", group.kv0, Range::from_zero);
  visit("kv_count", group.kv_count, Range::from_zero);
}

template <class Visit>
void fields_of(Fields<Layout> auto& layout, Visit&& visit) {
  visit("kind", layout.kind);
  visit("split", layout.split, Range::from_one);
  visit.newer("block", layout.block);
}

template <class Visit>
void fields_of(Fields<Mask> auto& mask, Visit&& visit) {
  visit("name", mask.name);
  visit("causal", mask.causal);
  visit("left", mask.left, Range::from_minus_one);
  visit("right", mask.right, Range::from_minus_one);
  visit("sinks", mask.sinks, Range::from_zero);
  visit("documents", mask.documents, Range::from_zero);
  visit("explicit_bands", mask.explicit_bands);
  visit("given", mask.given);
}

template <class Visit>
void fields_of(Fields<Problem> auto& problem, Visit&& visit) {
  visit("batch", problem.batch, Range::from_one);
  visit("seq_q", problem.seq_q, Range::from_one);
  visit("seq_kv", problem.seq_kv, Range::from_one);
  visit("heads", problem.heads, Range::from_one);
  visit("kv_heads", problem.kv_heads, Range::from_one);
  visit("head_dim", problem.head_dim, Range::from_one);
  visit("value_dim", problem.value_dim, Range::from_one);
  visit("dtype", problem.dtype);
  visit("wire", problem.wire);
  // Features of scores came one by one: a program of a build without one is for a problem without it.
  fields_of(problem.scores, [&](const char* name, auto& field) {
    if (std::string_view(name) == "scale") return visit(name, field);
    visit.newer(name, field);
  });
  visit.newer("shared_kv", problem.shared_kv);
  visit.list_if_any("alibi_slopes", problem.alibi_slopes);
  visit("mask", problem.mask);
}

template <class Visit>
void fields_of(Fields<Sharding> auto& sharding, Visit&& visit) {
  visit("problem", sharding.problem);
  visit("ranks", sharding.ranks, Range::from_one);
  visit("layout", sharding.layout);
  visit("queries", sharding.queries);
  visit("keys", sharding.keys);
  visit("groups", sharding.groups);
}

template <class Visit>
void fields_of(Fields<Outline> auto& outline, Visit&& visit) {
  visit("name", outline.name);
  visit("pass", outline.pass);
  visit("mode", outline.mode);
  visit("node_size", outline.node_size, Range::from_zero);
  visit("sharding", outline.sharding);
}

template <class Visit>
void fields_of(Fields<Value> auto& value, Visit&& visit) {
  visit("kind", value.kind);
  visit("group", value.group, Range::group);
  visit("segment", value.segment, is_key_side(value.kind) ? Range::key : Range::query);
  visit("contributor", value.contributor, Range::contributor);
}

template <class Visit>
void fields_of(Fields<BufferDecl> auto& buffer, Visit&& visit) {
  visit("value", buffer.value);
  visit("dtype", buffer.dtype);
  visit("bytes", buffer.bytes, Range::from_zero);
  visit("slot", buffer.slot, Range::slot);
}

template <class Visit>
void fields_of(Fields<KeyChunk> auto& chunk, Visit&& visit) {
  visit("key_value", chunk.key_value, Range::buffer);
  visit("dkey_value", chunk.dkey_value, Range::buffer_or_none);
  visit("start", chunk.start);
}

template <class Visit>
void fields_of(Fields<Send> auto& op, Visit&& visit) {
  visit("source", op.source, Range::buffer);
  visit("to", op.to, Range::rank);
}

template <class Visit>
void fields_of(Fields<Recv> auto& op, Visit&& visit) {
  visit("into", op.into, Range::buffer);
  visit("from", op.from, Range::rank);
}

template <class Visit>
void fields_of(Fields<Attend> auto& op, Visit&& visit) {
  visit("query", op.query, Range::buffer);
  visit("output", op.output, Range::buffer);
  visit("start", op.start);
  visit("keys", op.keys);
}

template <class Visit>
void fields_of(Fields<AttendBackward> auto& op, Visit&& visit) {
  visit("query", op.query, Range::buffer);
  visit("dquery", op.dquery, Range::buffer);
  visit("start", op.start);
  visit("keys", op.keys);
}

template <class Op, class Visit>
requires Fields<Op, Merge> || Fields<Op, Accumulate> || Fields<Op, Convert>
void fields_of(Op& op, Visit&& visit) {
  visit("into", op.into, Range::buffer);
  visit("from", op.from, Range::buffer);
}

template <class Visit>
void fields_of(Fields<Clear> auto& op, Visit&& visit) {
  visit("buffer", op.buffer, Range::buffer);
}

template <class Visit>
void fields_of(Fields<Gather> auto& gather, Visit&& visit) {
  visit("buffers", gather.buffers, Range::buffer);
}

template <class Visit>
void fields_of(Fields<Step> auto& step, Visit&& visit) {
  visit("number", step.number, Range::from_zero);
  visit("due", step.due, Range::from_zero);
  visit("lane", step.lane);
  visit("after", step.after, Range::step);
  visit("ops", step.ops);
  visit.list_if_any("gathers", step.gathers);
}

template <class Visit>
void fields_of(Fields<RankProgram> auto& program, Visit&& visit) {
  visit("buffers", program.buffers);
  visit("slots", program.slots, Range::from_zero);
  visit("steps", program.steps);
}

/// Names of operations, in the order of Op.
inline constexpr std::array op_names{"send",  "recv",       "attend",  "attend_backward",
                                     "merge", "accumulate", "convert", "clear"};
static_assert(op_names.size() == std::variant_size_v<Op>);

constexpr const char* name_of(Start start) { return start == Start::fresh ? "fresh" : "carry"; }

/// Every value of an enumeration whose fields are written by name_of().
template <class Enum>
inline constexpr std::array<Enum, 0> values_of{};
template <>
inline constexpr std::array values_of<DType>{DType::fp64, DType::fp32, DType::bf16, DType::fp16};
template <>
inline constexpr std::array values_of<Pass>{Pass::forward, Pass::backward};
template <>
inline constexpr std::array values_of<Lane>{Lane::compute, Lane::near, Lane::far};
template <>
inline constexpr std::array values_of<Mode>{Mode::overlapped, Mode::serial, Mode::gathered};
template <>
inline constexpr std::array values_of<Start>{Start::fresh, Start::carry};
template <>
inline constexpr std::array values_of<LayoutKind>{LayoutKind::block, LayoutKind::zigzag, LayoutKind::striped,
                                                  LayoutKind::chunked, LayoutKind::given};
template <>
inline constexpr std::array values_of<ValueKind>{ValueKind::query, ValueKind::key_value, ValueKind::output,
                                                 ValueKind::dquery, ValueKind::dkey_value};

template <class T>
concept NamedEnum = std::is_enum_v<T> && !values_of<T>.empty();

}  // namespace distattn
