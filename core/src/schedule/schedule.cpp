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

/// Lays the parts of one value behind each other.
class PartList {
 public:
  PartList(std::int64_t batch, std::int64_t tokens) : batch_(batch), tokens_(tokens) {}

  void add(int heads, int dim, DType dtype) { add(heads, tokens_, dim, dtype); }
  /// One row for all tokens of a head.
  void add_common(int heads, int dim, DType dtype) { add(heads, std::min<std::int64_t>(tokens_, 1), dim, dtype); }
  const PartShapes& parts() const { return parts_; }
  std::size_t end() const { return end_; }

 private:
  void add(int heads, std::int64_t tokens, int dim, DType dtype) {
    const std::size_t elements = index(batch_ * heads * tokens * dim);
    const std::size_t bytes = elements * size_of(dtype);
    parts_.push_back({end_, heads, tokens, dim, dtype, bytes});
    end_ += aligned(bytes);
  }

  std::int64_t batch_, tokens_;
  std::size_t end_ = 0;
  PartShapes parts_;
};

PartList list_parts(const Outline& outline, const Value& value, DType dtype) {
  const Problem& problem = outline.sharding.problem;
  const HeadGroup& group = outline.sharding.groups[index(value.group)];
  PartList parts(problem.batch, segment_of(outline, value).run.count);
  switch (value.kind) {
    case ValueKind::query:
      parts.add(group.q_count, problem.head_dim, dtype);
      if (outline.pass == Pass::forward) break;
      parts.add(group.q_count, problem.value_dim, dtype);
      parts.add(group.q_count, 1, problem.accumulator());
      parts.add(group.q_count, 1, problem.accumulator());
      if (problem.has_sums()) parts.add_common(group.kv_count, problem.head_dim, DType::fp32);
      if (problem.sends_low_lse()) parts.add(group.q_count, 1, DType::fp16);
      break;
    case ValueKind::output:
      parts.add(group.q_count, problem.value_dim, dtype);
      parts.add(group.q_count, 1, problem.accumulator());
      if (problem.has_low_lse() && dtype == problem.accumulator()) parts.add(group.q_count, 1, DType::fp16);
      break;
    case ValueKind::dquery:
      parts.add(group.q_count, problem.head_dim, dtype);
      if (!problem.has_sums()) break;
      parts.add(group.q_count, 1, dtype);
      if (value.contributor == owner_of(outline, value)) parts.add(group.q_count, 1, DType::fp32);
      break;
    case ValueKind::key_value:
    case ValueKind::dkey_value:
      parts.add(group.kv_count, problem.head_dim, dtype);
      if (!problem.shared_kv) parts.add(group.kv_count, problem.value_dim, dtype);
      break;
  }
  return parts;
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
  return list_parts(outline, value, dtype).parts();
}

std::size_t buffer_bytes(const Outline& outline, const Value& value, DType dtype) {
  return list_parts(outline, value, dtype).end();
}

std::size_t message_bytes(const Outline& outline, const Value& value, DType dtype) {
  std::size_t sum = 0;
  for (const PartShape& part : parts_of(outline, value, dtype)) sum += part.bytes;
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
