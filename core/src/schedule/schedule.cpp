#include "distattn/schedule.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "core/src/schedule/aligned.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

const Segment& segment_of(const Outline& outline, const Value& value) {
  const Sharding& sharding = outline.sharding;
  return (is_key_side(value.kind) ? sharding.keys : sharding.queries)[index(value.segment)];
}

/// Calls each(its shape, at offset 0) for each part of a value. Plans ask millions of times for sizes alone.
template <class Each>
void for_each_part(const Outline& outline, const Value& value, DType dtype, Each each) {
  const Problem& problem = outline.sharding.problem;
  const HeadGroup& group = outline.sharding.groups[index(value.group)];
  const std::int64_t tokens = segment_of(outline, value).run.count;
  const auto add = [&](int heads, std::int64_t rows, int dim, DType type) {
    each(PartShape{0, heads, rows, dim, type, index(problem.batch * heads * rows * dim) * size_of(type)});
  };
  switch (value.kind) {
    case ValueKind::query:
      add(group.q_count, tokens, problem.head_dim, dtype);
      if (outline.pass == Pass::forward) break;
      add(group.q_count, tokens, problem.value_dim, dtype);
      add(group.q_count, tokens, 1, problem.accumulator());
      add(group.q_count, tokens, 1, problem.accumulator());
      if (problem.has_sums()) add(group.kv_count, std::min<std::int64_t>(tokens, 1), problem.head_dim, DType::fp32);
      if (problem.sends_low_lse()) add(group.q_count, tokens, 1, DType::fp16);
      break;
    case ValueKind::output:
      add(group.q_count, tokens, problem.value_dim, dtype);
      add(group.q_count, tokens, 1, problem.accumulator());
      if (problem.has_low_lse() && dtype == problem.accumulator()) add(group.q_count, tokens, 1, DType::fp16);
      break;
    case ValueKind::dquery:
      add(group.q_count, tokens, problem.head_dim, dtype);
      if (!problem.has_sums()) break;
      add(group.q_count, tokens, 1, dtype);
      if (value.contributor == owner_of(outline, value)) add(group.q_count, tokens, 1, DType::fp32);
      break;
    case ValueKind::key_value:
    case ValueKind::dkey_value:
      add(group.kv_count, tokens, problem.head_dim, dtype);
      if (!problem.shared_kv) add(group.kv_count, tokens, problem.value_dim, dtype);
      break;
  }
}

}  // namespace

void check(const Outline& outline, std::size_t programs) {
  const int ranks = outline.sharding.ranks;
  if (ranks < 0 || index(ranks) != programs)
    refuse(fmt::format("ranks has {} programs (outline.sharding.ranks says {}): give one for each", programs, ranks));
  check(outline.sharding);
}

const char* name_of(ValueKind kind) {
  switch (kind) {
    case ValueKind::query:
      return "q";
    case ValueKind::key_value:
      return "kv";
    case ValueKind::output:
      return "o";
    case ValueKind::dquery:
      return "dq";
    case ValueKind::dkey_value:
      return "dkv";
  }
  return "?";
}

PartShapes parts_of(const Outline& outline, const Value& value, DType dtype) {
  PartShapes parts;
  std::size_t end = 0;
  for_each_part(outline, value, dtype, [&](PartShape part) {
    part.offset = end;
    end += aligned(part.bytes);
    parts.push_back(part);
  });
  return parts;
}

std::size_t buffer_bytes(const Outline& outline, const Value& value, DType dtype) {
  std::size_t sum = 0;
  for_each_part(outline, value, dtype, [&](const PartShape& part) { sum += aligned(part.bytes); });
  return sum;
}

std::size_t message_bytes(const Outline& outline, const Value& value, DType dtype) {
  std::size_t sum = 0;
  for_each_part(outline, value, dtype, [&](const PartShape& part) { sum += part.bytes; });
  return sum;
}

DType dtype_of(const Outline& outline, ValueKind kind) {
  const Problem& problem = outline.sharding.problem;
  return is_input(kind) ? problem.dtype : problem.accumulator();
}

Rank owner_of(const Outline& outline, const Value& value) { return segment_of(outline, value).owner; }

bool is_far(const Outline& outline, Rank a, Rank b) {
  return outline.node_size > 0 && a / outline.node_size != b / outline.node_size;
}

std::string to_string(const Value& value) {
  const std::string name = fmt::format("{}(g{}, {})", name_of(value.kind), value.group, index(value.segment));
  return value.contributor < 0 ? name : fmt::format("{}<-{}", name, value.contributor);
}

}  // namespace distattn
