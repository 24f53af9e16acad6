#pragma once
/// Programs written by hand, for tests of what runs them.

#include <cstddef>
#include <utility>
#include <vector>

#include "distattn/schedule.hpp"

namespace distattn::test {

/// One segment of `tokens` for each rank on both sides, one head of dimension 8, fp32.
inline Outline block_outline(int ranks, std::int64_t tokens, Pass pass = Pass::forward) {
  Outline outline;
  outline.name = "hand-made";
  outline.pass = pass;
  Sharding& sharding = outline.sharding;
  sharding.ranks = ranks;
  sharding.problem.seq_q = sharding.problem.seq_kv = ranks * tokens;
  sharding.problem.head_dim = sharding.problem.value_dim = 8;
  sharding.problem.mask.causal = false;
  for (Rank rank = 0; rank < ranks; ++rank) sharding.queries.push_back({{rank * tokens, tokens, 1}, rank});
  sharding.keys = sharding.queries;
  sharding.groups = {{0, 1, 0, 1}};
  return outline;
}

/// Collects buffers, each in a slot of its own, and steps.
class ProgramWriter {
 public:
  explicit ProgramWriter(const Outline& outline) : outline_(outline) {}

  BufferId buffer(const Value& value) { return buffer(value, dtype_of(outline_, value.kind)); }
  BufferId buffer(const Value& value, DType dtype) {
    std::size_t bytes = 0;
    for (const PartShape& part : parts_of(outline_, value, dtype)) bytes = part.offset + part.bytes;
    bytes = (bytes + 63) / 64 * 64;
    program_.buffers.push_back({value, dtype, bytes, static_cast<int>(program_.slots.size())});
    program_.slots.push_back(bytes);
    return static_cast<BufferId>(program_.buffers.size() - 1);
  }
  StepId step(Lane lane, int number, std::vector<Op> ops, std::vector<StepId> after = {}) {
    program_.steps.push_back({number, number, lane, std::move(ops), std::move(after)});
    return static_cast<StepId>(program_.steps.size() - 1);
  }
  RankProgram take() { return std::move(program_); }

 private:
  const Outline& outline_;
  RankProgram program_;
};

}  // namespace distattn::test
