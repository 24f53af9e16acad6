#include "backends/batches.hpp"

#include <algorithm>
#include <cmath>

#include "distattn/access.hpp"
#include "distattn/mask.hpp"

namespace distattn::backends {
namespace {

using Part = BufferTable::Part;

std::int64_t elements(const Part& part) {
  return static_cast<std::int64_t>(part.shape.bytes / size_of(part.shape.dtype));
}

/// Which operations of one step must follow which: an operation's level is one more than that of any before it that
/// touches the same slot, unless both only read it.
class Levels {
 public:
  explicit Levels(const BufferTable& buffers) : buffers_(buffers) {}

  int next(const Op& op) {
    int level = 0;
    for_each_access(op, [&](BufferId buffer, Access access) { level = std::max(level, after(op, buffer, access)); });
    for_each_access(op, [&](BufferId buffer, Access access) {
      Use& use = slots_[buffers_.decl(buffer).slot];
      int& last = access == Access::read ? use.read : shared(op, buffer) ? use.shared_write : use.write;
      last = std::max(last, level);
    });
    return level;
  }

 private:
  struct Use {
    int read = -1, write = -1, shared_write = -1;
  };

  /// Backward kernels add to one key segment's gradients from several operations of a list.
  static bool shared(const Op& op, BufferId buffer) {
    const auto* backward = std::get_if<AttendBackward>(&op);
    return backward != nullptr && buffer != backward->dquery;
  }
  int after(const Op& op, BufferId buffer, Access access) const {
    const auto found = slots_.find(buffers_.decl(buffer).slot);
    if (found == slots_.end()) return 0;
    const Use& use = found->second;
    if (access == Access::read) return std::max(use.write, use.shared_write) + 1;
    const int exclusive = std::max(use.read, use.write) + 1;
    return std::max(exclusive, shared(op, buffer) ? use.shared_write : use.shared_write + 1);
  }

  const BufferTable& buffers_;
  std::map<int, Use> slots_;
};

}  // namespace

/// Turns operations into arguments.
class Batches::Builder {
 public:
  Builder(const BufferTable& buffers, Batches& into)
      : buffers_(buffers),
        sharding_(buffers.outline().sharding),
        mask_(bands_of(sharding_.problem.mask)),
        into_(into) {}

  std::vector<Batch> build(const Step& step) {
    Levels levels(buffers_);
    batches_.clear();
    for (const Op& op : step.ops) {
      level_ = levels.next(op);
      std::visit([&](const auto& one) { add(one); }, op);
    }
    std::vector<Batch> in_order;
    for (auto& [place, batch] : batches_) in_order.push_back(std::move(batch));
    return in_order;
  }

 private:
  void add(const Send&) { refuse_message(); }
  void add(const Recv&) { refuse_message(); }
  [[noreturn]] static void refuse_message() {
    refuse("a message stands in a compute step (exchanges have their own lanes)");
  }

  void add(const Attend& op) {
    const auto query = buffers_.parts(op.query), output = buffers_.parts(op.output);
    list<kernels::AttendArgs>().push_back({shape(op.query), query[0].data, run(op.query), keys(op.query, op.keys),
                                           output[0].data, output[1].data, op.start == Start::carry});
  }
  void add(const AttendBackward& op) {
    const auto query = buffers_.parts(op.query);
    list<kernels::AttendBackwardArgs>().push_back(
        {shape(op.query), query[0].data, query[1].data, query[2].data, query[3].data, run(op.query),
         keys(op.query, op.keys), buffers_.parts(op.dquery)[0].data, op.start == Start::carry});
  }
  void add(const Merge& op) {
    const auto into = buffers_.parts(op.into), from = buffers_.parts(op.from);
    list<kernels::MergeArgs>().push_back({sharding_.problem.accumulator(), elements(into[1]), into[0].shape.dim,
                                          into[0].data, into[1].data, from[0].shape.dtype, from[0].data,
                                          from[1].data});
  }
  void add(const Accumulate& op) {
    const auto into = buffers_.parts(op.into), from = buffers_.parts(op.from);
    for (std::size_t part = 0; part < into.size(); ++part) {
      list<kernels::AccumulateArgs>().push_back({sharding_.problem.accumulator(), elements(into[part]),
                                                 into[part].data, from[part].shape.dtype, from[part].data});
    }
  }
  void add(const Convert& op) {
    const auto into = buffers_.parts(op.into), from = buffers_.parts(op.from);
    for (std::size_t part = 0; part < into.size(); ++part) {
      list<kernels::ConvertArgs>().push_back({elements(into[part]), into[part].shape.dtype, into[part].data,
                                              from[part].shape.dtype, from[part].data});
    }
  }
  void add(const Clear& op) {
    const auto parts = buffers_.parts(op.buffer);
    const bool partial = buffers_.decl(op.buffer).value.kind == ValueKind::output;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      const double identity = partial && part == 1 ? -INFINITY : 0.0;
      list<FillArgs>().push_back({parts[part].shape.dtype, parts[part].data, elements(parts[part]), identity});
    }
  }

  template <class Args>
  std::vector<Args>& list() {
    const std::size_t kind = Batch(std::vector<Args>()).index();
    Batch& batch = batches_[{level_, kind}];
    if (batch.index() != kind) batch = std::vector<Args>();
    return std::get<std::vector<Args>>(batch);
  }

  const Value& value(BufferId buffer) const { return buffers_.decl(buffer).value; }
  const Run& run(BufferId query) const { return sharding_.queries[index(value(query).segment)].run; }

  kernels::TileShape shape(BufferId query) const {
    const Problem& problem = sharding_.problem;
    const HeadGroup& group = sharding_.groups[static_cast<std::size_t>(value(query).group)];
    return {problem.dtype,
            problem.batch,
            {group.q_count, group.kv_count, group.q0, group.kv0, problem.heads_per_kv()},
            problem.head_dim,
            problem.value_dim,
            problem.softmax_scale()};
  }

  std::span<const kernels::KeySide> keys(BufferId query, const std::vector<KeyChunk>& chunks) {
    std::vector<kernels::KeySide>& sides = into_.keys_.emplace_back();
    for (const KeyChunk& chunk : chunks) {
      const auto parts = buffers_.parts(chunk.key_value);
      const SegmentId segment = value(chunk.key_value).segment;
      kernels::KeySide side{parts[0].data,
                            parts[1].data,
                            sharding_.keys[index(segment)].run,
                            bands(value(query).segment, segment),
                            nullptr,
                            nullptr,
                            chunk.start == Start::carry};
      if (buffers_.outline().pass == Pass::backward) {
        const auto gradients = buffers_.parts(chunk.dkey_value);
        side.dk = gradients[0].data;
        side.dv = gradients[1].data;
      }
      sides.push_back(side);
    }
    return sides;
  }
  /// One list for all head groups of a tile.
  std::span<const Band> bands(SegmentId query, SegmentId key) {
    const auto [found, added] = into_.bands_.try_emplace({query, key});
    if (added) mask_.touching(sharding_.queries[index(query)].run, sharding_.keys[index(key)].run, found->second);
    return found->second;
  }

  const BufferTable& buffers_;
  const Sharding& sharding_;
  const BandIndex mask_;
  Batches& into_;
  int level_ = 0;
  std::map<std::pair<int, std::size_t>, Batch> batches_;  // by level and kind
};

Batches::Batches(const BufferTable& buffers) {
  Builder builder(buffers, *this);
  for (const Step& step : buffers.program().steps) {
    steps_.push_back(step.lane == Lane::compute ? builder.build(step) : std::vector<Batch>());
  }
}

}  // namespace distattn::backends
