#include "backends/placement.hpp"

#include <algorithm>

#include "distattn/access.hpp"
#include "distattn/mask.hpp"

namespace distattn::backends {
namespace {

/// Kernels pack operands anew for every block of the other side. Where a row meets this many rows, packing it once
/// before costs less than reading it again and again among other heads' rows.
constexpr double most_met = 1024;

/// For each buffer: how many rows of the other side a row of it meets, on average.
class Meetings {
 public:
  explicit Meetings(const BufferTable& buffers)
      : buffers_(buffers),
        sharding_(buffers.outline().sharding),
        mask_(bands_of(sharding_.problem.mask)),
        rows_(buffers.program().buffers.size()) {
    for (const Step& step : buffers.program().steps) {
      for (const Op& op : step.ops) {
        if (const auto* attend = std::get_if<Attend>(&op)) count(*attend, attend->output);
        if (const auto* backward = std::get_if<AttendBackward>(&op)) count(*backward, backward->dquery);
      }
    }
  }
  double of(BufferId buffer) const { return rows_[index(buffer)]; }

 private:
  template <class O>
  void count(const O& op, BufferId result) {
    const Run& queries = sharding_.queries[index(buffers_.decl(op.query).value.segment)].run;
    for (const KeyChunk& chunk : op.keys) {
      const Run& keys = sharding_.keys[index(buffers_.decl(chunk.key_value).value.segment)].run;
      const auto pairs = static_cast<double>(mask_.pairs(queries, keys));
      const double of_query = pairs / static_cast<double>(std::max<std::int64_t>(1, queries.count));
      const double of_key =
          pairs * sharding_.problem.heads_per_kv() / static_cast<double>(std::max<std::int64_t>(1, keys.count));
      for (const BufferId buffer : {op.query, result}) rows_[index(buffer)] += of_query;
      rows_[index(chunk.key_value)] += of_key;
      if constexpr (std::is_same_v<O, AttendBackward>) rows_[index(chunk.dkey_value)] += of_key;
    }
  }

  const BufferTable& buffers_;
  const Sharding& sharding_;
  const BandIndex mask_;
  std::vector<double> rows_;
};

/// Forward passes pack a query once and write an output once.
bool touched_once(const BufferTable& buffers, BufferId buffer) {
  const ValueKind kind = buffers.decl(buffer).value.kind;
  return buffers.outline().pass == Pass::forward && (kind == ValueKind::query || kind == ValueKind::output);
}

}  // namespace

Placement::Placement(const BufferTable& buffers) : may_move_(touched_by_tiles_alone(buffers.program())) {
  const Meetings meetings(buffers);
  for (std::size_t buffer = 0; buffer < buffers.program().buffers.size(); ++buffer) {
    const auto id = static_cast<BufferId>(buffer);
    may_move_[buffer] = may_move_[buffer] && (touched_once(buffers, id) || meetings.of(id) <= most_met);
    first_.push_back(slots_.size());
    for (const BufferTable::Part& part : buffers.parts(id)) {
      slots_.push_back(
          kernels::packed_rows(static_cast<void*>(part.data), part.shape.heads, part.shape.tokens, part.shape.dim));
    }
  }
  rows_ = slots_;
}

}  // namespace distattn::backends
