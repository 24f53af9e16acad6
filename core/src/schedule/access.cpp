#include "distattn/access.hpp"

#include <algorithm>

namespace distattn {
namespace {

/// Kernels pack operands again for every block of the other side. If a row is computed with more rows than this,
/// packing it once before costs less than reading it again and again from between other heads' rows.
constexpr double most_partners = 1024;

/// By buffer: whether attention's tiles touch it and nothing else does.
std::vector<bool> touched_by_tiles_alone(const RankProgram& program) {
  std::vector<bool> by_tiles(program.buffers.size()), otherwise(program.buffers.size());
  for (const Step& step : program.steps) {
    for (const Op& op : step.ops) {
      const bool tile = std::holds_alternative<Attend>(op) || std::holds_alternative<AttendBackward>(op);
      for_each_access(op, [&](BufferId buffer, Access) { (tile ? by_tiles : otherwise)[index(buffer)] = true; });
    }
  }
  for (std::size_t buffer = 0; buffer < by_tiles.size(); ++buffer) {
    by_tiles[buffer] = by_tiles[buffer] && !otherwise[buffer];
  }
  return by_tiles;
}

/// For each buffer: with how many rows of the other side a row of it is computed, on average.
class RowPartners {
 public:
  RowPartners(const Outline& outline, const RankProgram& program,
              const std::function<std::int64_t(SegmentId, SegmentId)>& pairs)
      : sharding_(outline.sharding), program_(program), pairs_(pairs), rows_(program.buffers.size()) {
    for (const Step& step : program.steps) {
      for (const Op& op : step.ops) {
        if (const auto* attend = std::get_if<Attend>(&op)) count(*attend, attend->output);
        if (const auto* backward = std::get_if<AttendBackward>(&op)) count(*backward, backward->dquery);
      }
    }
  }
  double of(BufferId buffer) const { return rows_[index(buffer)]; }

 private:
  SegmentId segment_of(BufferId buffer) const { return program_.buffers[index(buffer)].value.segment; }

  template <class O>
  void count(const O& op, BufferId result) {
    const SegmentId query = segment_of(op.query);
    const std::int64_t queries = sharding_.queries[index(query)].run.count;
    for (const KeyChunk& chunk : op.keys) {
      const SegmentId key = segment_of(chunk.key_value);
      const std::int64_t keys = sharding_.keys[index(key)].run.count;
      const auto pairs = static_cast<double>(pairs_(query, key));
      const double of_query = pairs / static_cast<double>(std::max<std::int64_t>(1, queries));
      const double of_key =
          pairs * sharding_.problem.heads_per_kv() / static_cast<double>(std::max<std::int64_t>(1, keys));
      for (const BufferId buffer : {op.query, result}) rows_[index(buffer)] += of_query;
      rows_[index(chunk.key_value)] += of_key;
      if constexpr (std::is_same_v<O, AttendBackward>) rows_[index(chunk.dkey_value)] += of_key;
    }
  }

  const Sharding& sharding_;
  const RankProgram& program_;
  const std::function<std::int64_t(SegmentId, SegmentId)>& pairs_;
  std::vector<double> rows_;
};

/// Forward passes pack a query once and write an output once.
bool touched_once(Pass pass, ValueKind kind) {
  return pass == Pass::forward && (kind == ValueKind::query || kind == ValueKind::output);
}

}  // namespace

std::vector<bool> use_in_place(const Outline& outline, const RankProgram& program,
                               const std::function<std::int64_t(SegmentId query, SegmentId key)>& pairs) {
  std::vector<bool> in_place = touched_by_tiles_alone(program);
  const RowPartners partners(outline, program, pairs);
  for (std::size_t buffer = 0; buffer < in_place.size(); ++buffer) {
    const bool seldom = touched_once(outline.pass, program.buffers[buffer].value.kind) ||
                        partners.of(static_cast<BufferId>(buffer)) <= most_partners;
    in_place[buffer] = in_place[buffer] && seldom;
  }
  return in_place;
}

}  // namespace distattn
